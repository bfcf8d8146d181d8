// On which part of a kernel of a cluster, whose warps are specialized, compute-sanitizer's racecheck does not end. Each
// of two blocks has 4 warps that consume and a warp that copies for them, every copy to a stage of its own, and ends.
// The 4 warps meet in the block, and push their sums to the other block. A number runs what it stands for below, none
// all, in a process each, as an error stays in one. By the CUDA C++ Programming Guide all should end:
// a barrier of the block waits for threads that have not ended.
//     nvcc -arch=sm_90a -o racecheck_cluster examples/racecheck_cluster.cu
//     for i in {0..9}; do timeout -s KILL 8 compute-sanitizer --tool racecheck ./racecheck_cluster $i; done
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

enum { WHOLE, NO_CLUSTER, NO_PRODUCER, WAITS_FIRST, ENDS_LATER, COUNTED, NO_BULK_COPY, NO_HINT, NO_PUSH, BARE, KINDS };
const char* SAID[KINDS] = {"nothing left out",
                           "no cluster, and so no push",
                           "no producer warp: a thread of the first warp copies",
                           "the producer warp waits for the cluster, then ends",
                           "the producer warp ends after the barrier of the block",
                           "the barrier of the block is of the 4 warps: bar.sync 1, 128",
                           "no cp.async.bulk: the producer warp stores, and arrives",
                           "no time hint in mbarrier.try_wait",
                           "no push: neither mapa nor st.async",
                           "nothing but a warp that ends, and a barrier of the block"};
const int STAGES = 4, CONSUMERS = 128, WARP = 32, STAGE_BYTES = CONSUMERS * sizeof(float);

__device__ unsigned address(const void* shared) { return static_cast<unsigned>(__cvta_generic_to_shared(shared)); }

__device__ void init(uint64_t* barrier) {  // for one arrival a phase
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(barrier)) : "memory");
}

__device__ void arrive_and_expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(bytes) : "memory");
}

#define TRY_WAIT "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ready, [%0], 0"
template <bool hint>
__device__ void wait(uint64_t* barrier) {  // for its first phase
  if (hint)
    asm volatile("{ .reg .pred ready; AGAIN: " TRY_WAIT ", %1; @!ready bra.uni AGAIN; }" ::"r"(address(barrier)),
                 "r"(50000)
                 : "memory");
  else
    asm volatile("{ .reg .pred ready; AGAIN: " TRY_WAIT "; @!ready bra.uni AGAIN; }" ::"r"(address(barrier))
                 : "memory");
}

// x [blocks, STAGES, CONSUMERS] -> y [blocks, CONSUMERS]: the sums over the stages, of the other block of the cluster.
template <int kind>
__global__ void __launch_bounds__(CONSUMERS + WARP) exchange(const float* x, float* y) {
  __shared__ alignas(16) float staged[STAGES][CONSUMERS];
  __shared__ float pushed[CONSUMERS];
  __shared__ uint64_t full[STAGES], arrived;
  int thread = threadIdx.x;
  if (thread == 0) {
    for (int stage = 0; stage < STAGES; stage++) init(&full[stage]);
    init(&arrived);
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  if (kind != NO_CLUSTER) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");

  int copies_from = kind == NO_PRODUCER ? 0 : CONSUMERS;
  if (kind != BARE && thread / WARP == copies_from / WARP) {
    for (int stage = 0; stage < STAGES; stage++) {
      const float* from = x + (blockIdx.x * STAGES + stage) * CONSUMERS;
      if (kind == NO_BULK_COPY)
        for (int i = thread % WARP; i < CONSUMERS; i += WARP) staged[stage][i] = from[i];
      __syncwarp();
      if (thread == copies_from) arrive_and_expect(&full[stage], kind == NO_BULK_COPY ? 0 : STAGE_BYTES);
      if (thread == copies_from && kind != NO_BULK_COPY)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         address(staged[stage])),
                     "l"(from), "r"(STAGE_BYTES), "r"(address(&full[stage]))
                     : "memory");
    }
  }
  if (thread >= CONSUMERS && kind == WAITS_FIRST) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (thread >= CONSUMERS && kind != ENDS_LATER) return;

  float sum = 0;
  if (thread < CONSUMERS) {
    for (int stage = 0; stage < STAGES; stage++) {
      if (kind != BARE) wait<kind != NO_HINT>(&full[stage]);
      sum += kind == BARE ? x[(blockIdx.x * STAGES + stage) * CONSUMERS + thread] : staged[stage][thread];
    }
  }
  if (kind == COUNTED)
    asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory");
  else
    __syncthreads();
  if (kind != NO_CLUSTER)  // the other block's barriers are there
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (thread >= CONSUMERS) return;

  if (kind == BARE || kind == NO_PUSH || kind == NO_CLUSTER) {  // mapa and st.async are of a cluster
    y[(blockIdx.x ^ 1) * CONSUMERS + thread] = sum;
    return;
  }
  unsigned rank = blockIdx.x % 2 ^ 1, place, barrier;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(address(&pushed[thread])), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(address(&arrived)), "r"(rank));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(place), "f"(sum),
               "r"(barrier)
               : "memory");
  if (thread == 0) arrive_and_expect(&arrived, STAGE_BYTES);
  wait<kind != NO_HINT>(&arrived);
  y[blockIdx.x * CONSUMERS + thread] = pushed[thread];
}

template <int kind>
void run(const float* x, float* y) {
  cudaLaunchAttribute cluster{cudaLaunchAttributeClusterDimension};
  cluster.val.clusterDim = {2, 1, 1};
  int threads = kind == NO_PRODUCER ? CONSUMERS : CONSUMERS + WARP;
  cudaLaunchConfig_t config{dim3(2), dim3(threads), 0, 0, &cluster, kind == NO_CLUSTER ? 0u : 1u};
  printf("%d  %-59s ", kind, SAID[kind]);
  fflush(stdout);
  cudaMemset(y, 0, 2 * STAGE_BYTES);
  cudaLaunchKernelEx(&config, exchange<kind>, x, y);
  float sums[2 * CONSUMERS];
  cudaError_t error = cudaMemcpy(sums, y, sizeof(sums), cudaMemcpyDeviceToHost);
  bool right = true;
  for (int i = 0; i < 2 * CONSUMERS; i++) right &= sums[i] == (i < CONSUMERS ? 2 * STAGES : STAGES);
  puts(error ? cudaGetErrorString(error) : right ? "ended" : "wrong");
}

template <int kind>
void run_asked(int asked, const float* x, float* y) {
  if (asked == kind) run<kind>(x, y);
  if constexpr (kind + 1 < KINDS) run_asked<kind + 1>(asked, x, y);
}

int main(int count, char** words) {
  if (cudaError_t error = cudaFree(0)) {
    fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return 2;
  }
  if (count == 1) {
    for (int kind = 0; kind < KINDS; kind++) system((std::string(words[0]) + " " + std::to_string(kind)).c_str());
    return 0;
  }
  float ones_and_twos[2 * STAGES * CONSUMERS], *x, *y;  // of block 0, of block 1
  for (int i = 0; i < 2 * STAGES * CONSUMERS; i++) ones_and_twos[i] = 1 + i / (STAGES * CONSUMERS);
  cudaMalloc(&x, sizeof(ones_and_twos));
  cudaMalloc(&y, 2 * STAGE_BYTES);
  cudaMemcpy(x, ones_and_twos, sizeof(ones_and_twos), cudaMemcpyHostToDevice);
  run_asked<0>(atoi(words[1]), x, y);
}
