// Stands in for std::mt19937 in llama.cpp's samplers: the numbers are given, and not drawn.
//
// It has 53 bits, so the distributions of libstdc++ take one number for each draw, as it is.
#pragma once
#include <cstdint>
#include <random>

uint64_t given_number();  // below 2^53

namespace std {
struct given_engine {
    using result_type = uint64_t;
    explicit given_engine(uint32_t = 0) {}
    void seed(uint32_t) {}
    static constexpr result_type min() { return 0; }
    static constexpr result_type max() { return (1ull << 53) - 1; }
    result_type operator()() { return given_number(); }
};
}  // namespace std
#define mt19937 given_engine
