// Peak rate of the VEX-encoded vpdpbusd on 256-bit registers.
#include <immintrin.h>

#include "isa.hpp"

extern "C" double QATTN_BENCH_FUNCTION(std::int64_t rounds, const std::int8_t* data,
                                       std::int32_t* sink) {
  // Latency 5 at two a cycle wants 10 sums; 12 sums and 1 + 3 operands fill 16 registers.
  constexpr int kSums = 12;
  constexpr int kRight = 3;
  const auto* bytes = reinterpret_cast<const __m256i*>(data);
  __m256i left = _mm256_load_si256(bytes);
  __m256i right[kRight];
  __m256i sum[kSums];
#pragma GCC unroll 3
  for (int j = 0; j < kRight; ++j) right[j] = _mm256_load_si256(bytes + 1 + j);
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sum[i] = _mm256_load_si256(bytes + 4 + i);
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+x"(left));  // a new operand, as far as the compiler knows
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      sum[i] = _mm256_dpbusd_avx_epi32(sum[i], left, right[i % kRight]);
    }
  }
  auto* result = reinterpret_cast<__m256i*>(sink);
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) _mm256_store_si256(result + i, sum[i]);
  return 2.0 * 32 * kSums * static_cast<double>(rounds);
}
