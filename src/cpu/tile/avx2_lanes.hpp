// Eight lanes of AVX2 with FMA.
#pragma once

#include <immintrin.h>

#include "cpu/tile/xsimd_lanes.hpp"

namespace qattn::cpu {
namespace {

struct Avx2Lanes : XsimdLanes<xsimd::avx2> {
  using Sum = std::int32_t __attribute__((vector_size(32)));

  static Sum hold(Ints x) { return reinterpret_cast<Sum>(x.data); }
  static Ints value(Sum x) { return reinterpret_cast<__m256i>(x); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static constexpr bool kScalesByFloor = false;
  static Floats floor(Floats x) { return _mm256_floor_ps(x); }
  static void transpose(Floats (&x)[8]) {
    __m256 pairs[8];
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    __m256 quads[8];
    for (int i = 0; i < 8; i += 4) {
      for (int j = 0; j < 2; ++j) {
        quads[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0x44);
        quads[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0xEE);
      }
    }
    for (int i = 0; i < 4; ++i) {
      x[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
      x[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
    }
  }
  template <int kBits>
  static Ints shift_right(Ints x) {
    return _mm256_srli_epi32(x, kBits);
  }
  template <std::uint32_t kMask>
  static Ints merge_bits(Ints a, Ints b) {
    if constexpr (kMask == 0x0000FFFFU) return _mm256_blend_epi16(b, a, 0x55);
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(kMask));
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
  }
  static Ints dot_pairs(Ints sum, Ints a, Ints b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  }
};

}  // namespace
}  // namespace qattn::cpu
