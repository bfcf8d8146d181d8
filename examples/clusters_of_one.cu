// Blocks launched as clusters of one, as tilus 0.2.0 launches all of its kernels on Hopper, beside plain blocks and
// clusters of two: microseconds a launch, of 200 in a row, of blocks that do next to nothing.
//     nvcc -arch=sm_90a -run examples/clusters_of_one.cu
#include <cstdio>

#define BODY { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] + 1; }
__global__ void __launch_bounds__(128) plain(const float* x, float* y, int n) BODY
__global__ void __cluster_dims__(1, 1, 1) __launch_bounds__(128) ones(const float* x, float* y, int n) BODY
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128) twos(const float* x, float* y, int n) BODY

int main() {
  if (cudaError_t error = cudaFree(0)) {
    fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return 2;
  }
  float *x, *y;
  cudaMalloc(&x, 1 << 28);
  cudaMalloc(&y, 1 << 28);
  cudaMemset(x, 0, 1 << 28);
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  for (int threads : {32, 128}) {
    for (int grid : {132, 512, 1024, 2048, 8192, 65536}) {
      float us[3];
      for (int kernel = 0; kernel < 3; kernel++) {
        for (int rep = 0; rep < 3; rep++) {  // the last one counts
          cudaEventRecord(begin);
          for (int i = 0; i < 200; i++) {
            int n = grid * threads;
            if (kernel == 0) plain<<<grid, threads>>>(x, y, n);
            if (kernel == 1) ones<<<grid, threads>>>(x, y, n);
            if (kernel == 2) twos<<<grid, threads>>>(x, y, n);
          }
          cudaEventRecord(end);
          cudaEventSynchronize(end);
          float ms;
          cudaEventElapsedTime(&ms, begin, end);
          us[kernel] = ms * 1e3f / 200;
        }
      }
      printf("%4d threads %6d blocks: plain %.2f us, clusters of 1 %.2f, of 2 %.2f\n", threads, grid, us[0], us[1], us[2]);
    }
  }
  cudaError_t error = cudaGetLastError();
  puts(cudaGetErrorString(error));
  return error != cudaSuccess;
}
