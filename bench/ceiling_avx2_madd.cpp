// Peak rate of an exact int8 dot product without VNNI: vpmaddwd on widened bytes and its vpaddd.
#include <immintrin.h>

#include "isa.hpp"

extern "C" double QATTN_BENCH_FUNCTION(std::int64_t rounds, const std::int8_t* data,
                                       std::int32_t* sink) {
  // 8 sums, 2 + 4 operands and a product fill 15 of 16 registers; 8 sums outlast the latency of
  // the add several times.
  constexpr int kLeft = 2;
  constexpr int kRight = 4;
  const auto* bytes = reinterpret_cast<const __m128i*>(data);
  __m256i left[kLeft];
  __m256i right[kRight];
  __m256i sum[kLeft][kRight];
#pragma GCC unroll 2
  for (int i = 0; i < kLeft; ++i) left[i] = _mm256_cvtepi8_epi16(_mm_load_si128(bytes + i));
#pragma GCC unroll 4
  for (int j = 0; j < kRight; ++j) right[j] = _mm256_cvtepi8_epi16(_mm_load_si128(bytes + 2 + j));
#pragma GCC unroll 2
  for (int i = 0; i < kLeft; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kRight; ++j) sum[i][j] = _mm256_setzero_si256();
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    // The compiler must take the operands for new ones, or it moves the products out of the loop.
    asm volatile("" : "+x"(left[0]), "+x"(left[1]));
#pragma GCC unroll 2
    for (int i = 0; i < kLeft; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kRight; ++j) {
        sum[i][j] = _mm256_add_epi32(sum[i][j], _mm256_madd_epi16(left[i], right[j]));
      }
    }
  }
  auto* result = reinterpret_cast<__m256i*>(sink);
#pragma GCC unroll 2
  for (int i = 0; i < kLeft; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kRight; ++j) _mm256_store_si256(result + i * kRight + j, sum[i][j]);
  }
  return 2.0 * 16 * kLeft * kRight * static_cast<double>(rounds);
}
