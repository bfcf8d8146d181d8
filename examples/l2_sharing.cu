// Which blocks L2 serves once: 120 blocks, each alone on a multiprocessor, read streams of 448 KB through cp.async.bulk,
// 8 stages of 16 KB. 4 blocks share a stream: neighbours (4i to 4i + 3), every 30th block, or pairs of neighbours, 2 pairs
// that are 60 blocks apart. Launched plainly, and as clusters, which all run at once. Streams are 13 MB together and stay
// in L2. Prints microseconds a launch, the least of 20.
//     nvcc -arch=sm_90a -run examples/l2_sharing.cu
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>

constexpr int STEP = 16384, STAGES = 8, STEPS = 28, BLOCKS = 120, SHARERS = 4, STREAMS = BLOCKS / SHARERS;
enum Order { NEIGHBOURS, APART, PAIRS };

__device__ unsigned address_of(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__global__ void read_streams(const char* streams, Order order) {
  extern __shared__ __align__(128) char stages[];
  __shared__ __align__(8) unsigned long long arrived[STAGES];
  int block = blockIdx.x;
  int stream = order == NEIGHBOURS ? block / SHARERS : order == APART ? block % STREAMS : block / 2 % STREAMS;
  const char* from = streams + (size_t)stream * STEP * STEPS;
  for (int s = 0; s < STAGES; ++s)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address_of(&arrived[s])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  auto fill = [&](int step) {
    unsigned barrier = address_of(&arrived[step % STAGES]), to = address_of(stages + step % STAGES * STEP);
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(STEP) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from + (size_t)step * STEP), "r"(STEP), "r"(barrier)
                 : "memory");
  };
  for (int s = 0; s < STAGES; ++s) fill(s);
  for (int s = 0; s < STEPS; ++s) {
    for (unsigned done = 0; !done;)
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                   : "=r"(done)
                   : "r"(address_of(&arrived[s % STAGES])), "r"(s / STAGES & 1)
                   : "memory");
    if (s + STAGES < STEPS) fill(s + STAGES);
  }
}

int main() {
  if (cudaError_t error = cudaFree(0)) {
    fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return 2;
  }
  char* streams;
  cudaMalloc(&streams, (size_t)STREAMS * STEP * STEPS);
  cudaMemset(streams, 1, (size_t)STREAMS * STEP * STEPS);
  int shared = STAGES * STEP + 65536;  // more than half of what a multiprocessor has
  cudaFuncSetAttribute(read_streams, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  for (int cluster : {0, 1, 2, 4}) {
    float us[3];
    for (Order order : {NEIGHBOURS, APART, PAIRS}) {
      us[order] = 1e9f;
      for (int launch = 0; launch < 21; ++launch) {
        cudaLaunchAttribute attribute;
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim = {(unsigned)cluster, 1, 1};
        cudaLaunchConfig_t config = {};
        config.gridDim = BLOCKS;
        config.blockDim = 1;
        config.dynamicSmemBytes = shared;
        config.attrs = &attribute;
        config.numAttrs = cluster > 0;
        cudaEventRecord(begin);
        cudaLaunchKernelEx(&config, read_streams, (const char*)streams, order);
        cudaEventRecord(end);
        cudaEventSynchronize(end);
        float ms;
        cudaEventElapsedTime(&ms, begin, end);
        if (launch) us[order] = std::min(us[order], ms * 1000);  // the first one brings the streams into L2
      }
    }
    char how[32] = "plain";
    if (cluster) snprintf(how, sizeof how, "clusters of %d", cluster);
    printf("%-14s sharers are neighbours %5.2f us, apart %5.2f, pairs %5.2f\n", how, us[NEIGHBOURS], us[APART], us[PAIRS]);
  }
  cudaDeviceSynchronize();
  cudaError_t error = cudaGetLastError();
  puts(cudaGetErrorString(error));
  return error != cudaSuccess;
}
