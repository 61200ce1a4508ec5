// sglang's tree kernel in a library: rows of numbers go in, tokens come out.
//
// Both headers are those of the wheels. What is launched is what sglang's own binding launches,
// kernels/jit/csrc/speculative/sampling.cuh.
#include <sgl_kernel/speculative/sampling.cuh>

#include "device.h"

using namespace flashinfer::sampling;

constexpr uint32_t kThreads = 1024;
constexpr auto kernel =
    sglang::speculative_sampling::TreeSpeculativeSamplingTargetOnly<kThreads, SCAN_ALGO, REDUCE_ALGO,
                                                                    /*VEC_SIZE=*/4, /*DETERMINISTIC=*/true,
                                                                    float, int, long>;

// A tree has m nodes, of which node 0 is the last token of the text, and paths of at most
// `depth` nodes. d is a multiple of 4.
//
// candidates, next, sibling [n, m], q [n, m, d], coins [n, m], last [n]
// -> predicts [n, m], accept_index [n, depth], accepted [n]
extern "C" int tree(int n, int m, int depth, int d, float single, float acc, const long* candidates,
                    const long* index, const long* next, const long* sibling, const float* q,
                    const float* coins, const float* last, int* predicts, int* accept_index,
                    int* accepted) {
  size_t nodes = size_t(n) * m;
  Buffer<long> device_candidates(nodes, candidates), device_index(nodes, index);
  Buffer<long> device_next(nodes, next), device_sibling(nodes, sibling);
  Buffer<float> device_coins(nodes, coins), device_last(n, last);
  Buffer<float> device_q(nodes * d, q), device_p(nodes * d);
  Buffer<int> device_predicts(nodes), device_accept_index(size_t(n) * depth), device_accepted(n);
  device_p.fill(0);  // the kernel notes here what it has rejected
  device_predicts.fill(0);
  device_accept_index.fill(255);
  uint32_t shared = sizeof(SamplingTempStorage<kThreads, SCAN_ALGO, REDUCE_ALGO>);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  kernel<<<n, kThreads, shared>>>(
      device_predicts.at, device_accept_index.at, device_accepted.at, device_candidates.at,
      device_index.at, device_next.at, device_sibling.at, device_coins.at, device_last.at,
      device_q.at, device_p.at, n, depth, m, d, single, fmaxf(acc, 1e-9f));
  device_predicts.to(predicts);
  device_accept_index.to(accept_index);
  device_accepted.to(accepted);
  return last_error();
}
