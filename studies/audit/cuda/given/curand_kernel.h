// Stands in for cuRAND in the kernels of FlashInfer: the numbers are given, and not drawn.
//
// A row of a batch is a sequence of cuRAND's. Its number j is given_numbers[row][j].
#pragma once

static __device__ const float* given_numbers;  // [batch_size, given_width]
static __device__ unsigned given_width;
static __device__ unsigned given_asked;  // how many numbers the greediest row asked for

struct curandStatePhilox4_32_10_t {
  unsigned long long row;
  unsigned n_asked;
};

static __device__ void curand_init(unsigned long long, unsigned long long sequence,
                                   unsigned long long, curandStatePhilox4_32_10_t* state) {
  state->row = sequence;
  state->n_asked = 0;
}

static __device__ float curand_uniform(curandStatePhilox4_32_10_t* state) {
  unsigned j = state->n_asked++;
  if (threadIdx.x == 0) atomicMax(&given_asked, state->n_asked);
  return j < given_width ? given_numbers[state->row * given_width + j] : 0.5f;
}

// For noise by token, which sampling_from_logits asks for. It is compiled, and not called here.
static __device__ float4 curand_uniform4(curandStatePhilox4_32_10_t*) {
  return make_float4(0.5f, 0.5f, 0.5f, 0.5f);
}
