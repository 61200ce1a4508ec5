// Texts by llama.cpp's common_sampler_sample_and_accept_n, which gets its random numbers.
//
// What a network would answer is given: the sum of all tokens says which row of logits comes
// next, and which guess. Tokens are 0, 1, 2, 3 of a real vocabulary.
#include <algorithm>
#include <string>

#include "common.h"
#include "llama.h"
#include "sampling.h"

static const int V = 4;
static llama_model * model;
static std::vector<float> rows;  // of the positions of this round
static double (*draw)();

// A 0 would choose the first token even if it has no weight.
uint64_t given_number() { return std::max<uint64_t>(1, draw() * 0x1p53); }

extern "C" {
float * llama_get_logits_ith(llama_context *, int32_t i) { return rows.data() + i * V; }
void llama_synchronize(llama_context *) {}
const llama_model * llama_get_model(const llama_context *) { return model; }
int32_t llama_vocab_n_tokens(const llama_vocab *) { return V; }
llama_token llama_get_sampled_token_ith(llama_context *, int32_t) { return LLAMA_TOKEN_NULL; }
float * llama_get_sampled_probs_ith(llama_context *, int32_t) { return nullptr; }
float * llama_get_sampled_logits_ith(llama_context *, int32_t) { return nullptr; }
llama_token * llama_get_sampled_candidates_ith(llama_context *, int32_t) { return nullptr; }

// 1 if there is such a vocabulary.
int load(const char * path) {
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    auto params = llama_model_default_params();
    params.vocab_only = true;
    model = llama_model_load_from_file(path, params);
    return model != nullptr;
}
}

static common_params_sampling params_of(const std::string & kind) {
    common_params_sampling params;
    params.no_perf = true;
    if (kind == "defaults") return params;
    params.top_k = 0, params.top_p = 1, params.min_p = 0, params.temp = 1;
    if (kind == "temperature") params.temp = 0.5f;
    if (kind == "top-k") params.top_k = 2;
    if (kind == "penalties") params.penalty_repeat = 1.5f, params.penalty_freq = 0.5f;
    return params;
}

// Append the logits of the next k + 1 positions to `rows`. Returns k guesses.
static llama_tokens guess(int sum, int k, const float * logits, const int * guesses) {
    llama_tokens draft;
    rows.clear();
    for (int i = 0; i <= k; ++i) {
        int row = sum % V;
        rows.insert(rows.end(), logits + row * V, logits + (row + 1) * V);
        if (i < k) draft.push_back(guesses[row]);
        sum += guesses[row];
    }
    return draft;
}

// n tokens in rounds of k guesses. logits [V, V], guesses [V], out [n]. 1 if all went well.
extern "C" int text(double (*numbers)(), const char * kind, const float * logits,
                    const int * guesses, int n, int k, int * out) {
    draw = numbers;
    auto params = params_of(kind);
    auto * sampler = common_sampler_init(model, params);
    if (!sampler) return 0;
    int sum = 0, length = 0;
    while (length < n) {
        auto draft = guess(sum, k, logits, guesses);
        for (auto token : common_sampler_sample_and_accept_n(sampler, nullptr, draft, false)) {
            sum += token;
            if (length < n) out[length++] = token;
        }
    }
    common_sampler_free(sampler);
    return 1;
}
