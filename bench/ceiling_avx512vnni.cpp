// Peak rate of vpdpbusd on 512-bit registers.
#include <immintrin.h>

#include "isa.hpp"

extern "C" double QATTN_BENCH_FUNCTION(std::int64_t rounds, const std::int8_t* data,
                                       std::int32_t* sink) {
  // Latency 5 at two a cycle wants 10 sums or more.
  constexpr int kLeft = 2;
  constexpr int kRight = 7;
  __m512i left[kLeft];
  __m512i right[kRight];
  __m512i sum[kLeft][kRight];
#pragma GCC unroll 2
  for (int i = 0; i < kLeft; ++i) left[i] = _mm512_load_si512(data + 64 * i);
#pragma GCC unroll 7
  for (int j = 0; j < kRight; ++j) right[j] = _mm512_load_si512(data + 64 * (2 + j));
#pragma GCC unroll 2
  for (int i = 0; i < kLeft; ++i) {
#pragma GCC unroll 7
    for (int j = 0; j < kRight; ++j) sum[i][j] = _mm512_setzero_si512();
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+v"(left[0]), "+v"(left[1]));  // new operands, as far as the compiler knows
#pragma GCC unroll 2
    for (int i = 0; i < kLeft; ++i) {
#pragma GCC unroll 7
      for (int j = 0; j < kRight; ++j) {
        sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], left[i], right[j]);
      }
    }
  }
#pragma GCC unroll 2
  for (int i = 0; i < kLeft; ++i) {
#pragma GCC unroll 7
    for (int j = 0; j < kRight; ++j) _mm512_store_si512(sink + 16 * (i * kRight + j), sum[i][j]);
  }
  return 2.0 * 64 * kLeft * kRight * static_cast<double>(rounds);
}
