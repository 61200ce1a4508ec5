// Arrays of the host on the device, and the numbers that given/curand_kernel.h hands out.
#pragma once
#include <cstdio>

template <typename T>
struct Buffer {
  T* at = nullptr;
  size_t n;

  explicit Buffer(size_t n, const T* host = nullptr) : n(n) {
    cudaMalloc(&at, n * sizeof(T));
    if (host) cudaMemcpy(at, host, n * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~Buffer() { cudaFree(at); }
  Buffer(const Buffer&) = delete;

  void fill(int byte) { cudaMemset(at, byte, n * sizeof(T)); }
  void to(T* host) { cudaMemcpy(host, at, n * sizeof(T), cudaMemcpyDeviceToHost); }
};

// What went wrong, if anything did. 0 is success.
static int last_error() {
  auto error = cudaDeviceSynchronize();
  if (error != cudaSuccess) fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  return error;
}
