// Eight lanes of AVX2 with FMA.
#pragma once

#include <immintrin.h>

#include "cpu/tile/xsimd_lanes.hpp"

namespace qattn::cpu {
namespace {

struct Avx2Lanes : XsimdLanes<xsimd::avx2> {
  static constexpr int kRegisters = 16;
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

  // Vectors of bytes, as decoding takes them (vector_products.hpp).
  static Ints load_bytes(const std::int8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Ints load_unaligned(const std::int32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  // Neighbouring elements of kBits of a and b in turns, from the lower half of each 128 bits.
  template <int kBits>
  static Ints unpack_low(Ints a, Ints b) {
    if constexpr (kBits == 8) return _mm256_unpacklo_epi8(a, b);
    if constexpr (kBits == 16) return _mm256_unpacklo_epi16(a, b);
    if constexpr (kBits == 32) return _mm256_unpacklo_epi32(a, b);
    if constexpr (kBits == 64) return _mm256_unpacklo_epi64(a, b);
  }
  template <int kBits>
  static Ints unpack_high(Ints a, Ints b) {
    if constexpr (kBits == 8) return _mm256_unpackhi_epi8(a, b);
    if constexpr (kBits == 16) return _mm256_unpackhi_epi16(a, b);
    if constexpr (kBits == 32) return _mm256_unpackhi_epi32(a, b);
    if constexpr (kBits == 64) return _mm256_unpackhi_epi64(a, b);
  }
  // Sums of the two halves of each of two vectors, in order.
  static Ints sum_quarters(const Ints (&x)[2]) {
    return _mm256_add_epi32(_mm256_permute2x128_si256(x[0], x[1], 0x20),
                            _mm256_permute2x128_si256(x[0], x[1], 0x31));
  }
  template <int kHalf>
  static void store_quarter(float* to, Ints x) {
    _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm256_extracti128_si256(x, kHalf));
  }
  static void store_low_bytes(std::uint8_t* to, Ints x) {
    const __m256i bytes = _mm256_shuffle_epi8(x, _mm256_set1_epi32(0x0C080400));
    const __m128i low = _mm256_castsi256_si128(bytes);
    const __m128i both = _mm_unpacklo_epi32(low, _mm256_extracti128_si256(bytes, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), both);
  }
  static Ints to_ints(Floats x) { return _mm256_cvtps_epi32(x); }  // nearest, ties to even
  static float reduce_max(Floats x) {
    const __m128 halves = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 pairs = _mm_max_ps(halves, _mm_movehl_ps(halves, halves));
    return _mm_cvtss_f32(_mm_max_ss(pairs, _mm_movehdup_ps(pairs)));
  }
  static std::int32_t reduce_add(Ints x) {
    const __m128i halves = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    const __m128i pairs = _mm_add_epi32(halves, _mm_shuffle_epi32(halves, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32(pairs, 0xB1)));
  }
  // sum += four u8 of `a` by four s8 of `b`, exactly, where instructions of bytes saturate.
  static Ints dot_quads(Ints sum, Ints a, Ints b) {
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(0xFF)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
  }
};

}  // namespace
}  // namespace qattn::cpu
