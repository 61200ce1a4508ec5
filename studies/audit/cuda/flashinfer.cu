// FlashInfer's kernels in a library: rows of numbers go in, tokens come out.
//
// The header is that of the wheel. -I given comes first, so cuRAND is given/curand_kernel.h.
#include <flashinfer/sampling.cuh>

#include "device.h"

namespace fi = flashinfer::sampling;

struct Given {
  Buffer<float> numbers;

  Given(size_t n, unsigned width, const float* host) : numbers(n * width, host) {
    unsigned zero = 0;
    cudaMemcpyToSymbol(given_numbers, &numbers.at, sizeof numbers.at);
    cudaMemcpyToSymbol(given_width, &width, sizeof width);
    cudaMemcpyToSymbol(given_asked, &zero, sizeof zero);
  }
  int asked() {
    int most;
    cudaMemcpyFromSymbol(&most, given_asked, sizeof most);
    return most;
  }
};

extern "C" {

// numbers [n, width], p [n, k, d], drafted [n, k], q [n, k+1, d]
// -> how many numbers a row asked for, tokens [n, k+1], and what the kernel counts [n]
int chain(int n, int width, const float* numbers, int* asked, int k, int d, const float* p,
          const int* drafted, const float* q, int* tokens, int* accepted, int* emitted) {
  Given given(n, width, numbers);
  size_t rows = n;
  Buffer<float> device_p(rows * k * d, p), device_q(rows * (k + 1) * d, q);
  Buffer<int> device_drafted(rows * k, drafted), device_tokens(rows * (k + 1));
  Buffer<int> device_accepted(n), device_emitted(n);
  device_accepted.fill(0);
  device_emitted.fill(0);
  fi::ChainSpeculativeSampling<float, int>(
      device_p.at, device_drafted.at, device_q.at, device_tokens.at, device_accepted.at,
      device_emitted.at, n, k, d, /*deterministic=*/true, nullptr, /*seed=*/0, nullptr,
      /*offset=*/0);
  device_tokens.to(tokens);
  device_accepted.to(accepted);
  device_emitted.to(emitted);
  *asked = given.asked();
  return last_error();
}

// kind: 0 plain, 1 top-k, 2 top-p, 3 min-p, 4 top-k and top-p. rows [n, d] -> tokens [n]
int sample(int n, int width, const float* numbers, int* asked, int kind, int d, int top_k, float p,
           const float* rows, int* tokens) {
  Given given(n, width, numbers);
  Buffer<float> device_rows(size_t(n) * d, rows);
  Buffer<int> device_tokens(n);
  Buffer<bool> valid(n);
  float *row = device_rows.at, *no_floats = nullptr;
  int *out = device_tokens.at, *no_ints = nullptr;
  uint64_t* drawn = nullptr;  // no seed and no offset
  if (kind == 0)
    fi::SamplingFromProb<float, int>(row, out, valid.at, no_ints, n, d, true, drawn, 0, drawn, 0);
  if (kind == 1)
    fi::TopKSamplingFromProb<float, int>(row, out, valid.at, no_ints, no_floats, n, top_k, d, true,
                                         drawn, 0, drawn, 0);
  if (kind == 2)
    fi::TopPSamplingFromProb<float, int>(row, out, valid.at, no_ints, no_floats, n, p, d, true,
                                         drawn, 0, drawn, 0);
  if (kind == 3)
    fi::MinPSamplingFromProb<float, int>(row, no_floats, out, valid.at, no_ints, n, p, d, true,
                                         drawn, 0, drawn, 0);
  if (kind == 4)
    fi::TopKTopPSamplingFromProb<float, int>(row, no_ints, no_floats, out, valid.at, no_ints, n,
                                             top_k, p, d, true, drawn, 0, drawn, 0);
  device_tokens.to(tokens);
  *asked = given.asked();
  return last_error();
}
}
