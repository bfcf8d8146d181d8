// What a barrier costs: of a block, and of a cluster of 8 whose blocks wrote nothing, to each other, or to global memory
// before it. Nanoseconds a barrier, from launches of 100 and of 1100 of them: 16 clusters, 128 threads a block. And how
// many clusters fit at once, as the driver tells, of blocks that each fill a multiprocessor.
//     nvcc -arch=sm_90a -run examples/cluster_barriers.cu
#include <algorithm>
#include <cstdio>

enum { BLOCK, RELAXED, RELEASED, AFTER_PEER, AFTER_GLOBAL, KINDS };
const char* SAID[KINDS] = {"bar.sync of a block", "barrier.cluster, relaxed arrival", "barrier.cluster, released",
                           "barrier.cluster, released, a store to a peer before it",
                           "barrier.cluster, released, a store to global memory before it"};

template <int kind>
__global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(128) barriers(float* y, int count) {
  __shared__ float pushed[128];
  unsigned mine = static_cast<unsigned>(__cvta_generic_to_shared(&pushed[threadIdx.x])), peer;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(mine), "r"((blockIdx.x + 1) % 8));
  for (int i = 0; i < count; i++) {
    if (kind == AFTER_PEER) asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(peer), "f"(1.0f * i) : "memory");
    if (kind == AFTER_GLOBAL) y[blockIdx.x * 128 + threadIdx.x] = i;
    if (kind == BLOCK) asm volatile("bar.sync 0;" ::: "memory");
    if (kind == RELAXED) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    if (kind > RELAXED) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    if (kind > BLOCK) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  }
  // No block ends before what its peers push has come.
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  if (kind == AFTER_PEER) y[blockIdx.x * 128 + threadIdx.x] = pushed[threadIdx.x];
}

__global__ void one_a_multiprocessor() {}

template <int kind>
float launch_us(float* y, int count) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float least = 1e9f;
  for (int rep = 0; rep < 20; rep++) {
    float ms;
    cudaEventRecord(begin);
    barriers<kind><<<128, 128>>>(y, count);
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    cudaEventElapsedTime(&ms, begin, end);
    least = std::min(least, ms * 1e3f);
  }
  return least;
}

template <int kind>
void print_cost(float* y) {
  printf("%6.0f ns  %s\n", launch_us<kind>(y, 1100) - launch_us<kind>(y, 100), SAID[kind]);
}

int main() {
  if (cudaError_t error = cudaFree(0)) {
    fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return 2;
  }
  float* y;
  cudaMalloc(&y, 128 * 128 * sizeof(float));
  print_cost<BLOCK>(y);
  print_cost<RELAXED>(y);
  print_cost<RELEASED>(y);
  print_cost<AFTER_PEER>(y);
  print_cost<AFTER_GLOBAL>(y);
  int most = 0;
  cudaLaunchAttribute clusters{cudaLaunchAttributeClusterDimension};
  for (int size : {2, 4, 8}) {  // of blocks that fill a multiprocessor, as large tiles do
    clusters.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
    cudaLaunchConfig_t config{dim3(128), dim3(128), 200 << 10, 0, &clusters, 1};
    cudaFuncSetAttribute(one_a_multiprocessor, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
    cudaOccupancyMaxActiveClusters(&most, one_a_multiprocessor, &config);
    printf("%6d clusters of %d at once, of blocks that fill a multiprocessor\n", most, size);
  }
  cudaError_t error = cudaGetLastError();
  puts(cudaGetErrorString(error));
  return error != cudaSuccess;
}
