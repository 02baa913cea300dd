// Peak rate of an exact int8 dot product with AVX-512BW but no VNNI: vpmaddwd and its vpaddd.
#include <immintrin.h>

#include "isa.hpp"

extern "C" double QATTN_BENCH_FUNCTION(std::int64_t rounds, const std::int8_t* data,
                                       std::int32_t* sink) {
  constexpr int kLeft = 2;
  constexpr int kRight = 6;
  const auto* bytes = reinterpret_cast<const __m256i*>(data);
  __m512i left[kLeft];
  __m512i right[kRight];
  __m512i sum[kLeft][kRight];
#pragma GCC unroll 2
  for (int i = 0; i < kLeft; ++i) left[i] = _mm512_cvtepi8_epi16(_mm256_load_si256(bytes + i));
#pragma GCC unroll 6
  for (int j = 0; j < kRight; ++j) {
    right[j] = _mm512_cvtepi8_epi16(_mm256_load_si256(bytes + 2 + j));
  }
#pragma GCC unroll 2
  for (int i = 0; i < kLeft; ++i) {
#pragma GCC unroll 6
    for (int j = 0; j < kRight; ++j) sum[i][j] = _mm512_setzero_si512();
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    // The compiler must take the operands for new ones, or it moves the products out of the loop.
    asm volatile("" : "+v"(left[0]), "+v"(left[1]));
#pragma GCC unroll 2
    for (int i = 0; i < kLeft; ++i) {
#pragma GCC unroll 6
      for (int j = 0; j < kRight; ++j) {
        sum[i][j] = _mm512_add_epi32(sum[i][j], _mm512_madd_epi16(left[i], right[j]));
      }
    }
  }
#pragma GCC unroll 2
  for (int i = 0; i < kLeft; ++i) {
#pragma GCC unroll 6
    for (int j = 0; j < kRight; ++j) _mm512_store_si512(sink + 16 * (i * kRight + j), sum[i][j]);
  }
  return 2.0 * 32 * kLeft * kRight * static_cast<double>(rounds);
}
