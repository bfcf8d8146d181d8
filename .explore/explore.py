import sys, os, json, time, multiprocessing as mp
sys.path.insert(0, os.getcwd())
import torch
from common.problem import *; from common.accuracy import Judge
import kernels_triton, kernels_tilus
ALL={k.full_name:k for k in (*kernels_triton.KERNELS,*kernels_tilus.KERNELS)}
def job(x):
    name,m,layout,cfg=x
    k=ALL[name]; p=Matmul(m,256,7168,layout=Layout(layout))
    try: k.build(p,cfg); return None
    except Exception as e: return str(e)[-300:]
if __name__=='__main__':
    import triton
    out=os.environ['OUT']
    Ts=[1,16,64,256,1024]
    lay='nk'
    res=[]
    for name in ['tilus/semaphore.in_place','tilus/semaphore.fp32','triton/decompose_k.vector']:
        k=ALL[name]
        cfgs={}
        for T in Ts:
            for c in k.configs(Matmul(T,256,7168,layout=Layout(lay))): cfgs.setdefault(c,T)
        if name.startswith('triton'):
            cfgs={c:t for c,t in cfgs.items() if c.split_k not in (2,3,5,6)}
        t=time.time()
        with mp.get_context('spawn').Pool(16) as pool:
            errs=pool.map(job,[(name,t_,lay,c) for c,t_ in cfgs.items()],chunksize=4)
        print(name,len(cfgs),'built in',round(time.time()-t),'errors',sum(e is not None for e in errs),[e for e in errs if e][:2],flush=True)
        ok=[c for c,e in zip(cfgs,errs) if e is None]
        t=time.time()
        for T in Ts:
            p=Matmul(T,256,7168,layout=Layout(lay)); i=p.inputs('cuda'); J=Judge(p,i)
            o=torch.empty(T,256,dtype=torch.bfloat16,device='cuda')
            mm=triton.testing.do_bench(lambda: torch.mm(i.a,i.b,out=o),warmup=5,rep=20,return_mode='median')*1e3
            best=[]
            for c in ok:
                if c not in set(k.configs(p)): continue
                f=lambda: k.launch(i.a,i.b,out=o,config=c)
                o.fill_(float('nan')); f(); a=J.judge(o,k.roundings(c))
                us=triton.testing.do_bench(f,warmup=1,rep=3,return_mode='median')*1e3
                best.append((us,str(c),a.ok,a.times_torch)); res.append((name,T,us,str(c),a.ok,a.times_torch))
            best.sort()
            print(name,'T',T,'mm',round(mm,2),'wrong',sum(not b[2] for b in best),'of',len(best),flush=True)
            for b in best[:5]: print('   ',round(b[0],2),b[1],round(b[3],2),flush=True)
            if time.time()-t>100: break
        json.dump(res,open(out+'/explore.json','w'))
