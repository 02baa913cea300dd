// Transposition of sixteen vectors of AVX-512.
#pragma once

#include <immintrin.h>

namespace qattn::cpu {
namespace {

// 16 x 16 dwords in place.
inline void transpose_dwords(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now the four dwords of every 128-bit lane belong to one column; the lanes are transposed next.
  constexpr int kEven = 0x88;
  constexpr int kOdd = 0xDD;
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], kEven);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], kOdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], kEven);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], kOdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], kEven);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], kOdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], kEven);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], kOdd);
  }
}

}  // namespace
}  // namespace qattn::cpu
