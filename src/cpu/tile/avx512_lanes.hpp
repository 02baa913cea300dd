// Sixteen lanes of AVX-512 (f, bw, dq).
#pragma once

#include <immintrin.h>

#include "cpu/tile/avx512_transpose.hpp"
#include "cpu/tile/xsimd_lanes.hpp"

namespace qattn::cpu {
namespace {

struct Avx512Lanes : XsimdLanes<xsimd::avx512bw> {
  static constexpr int kRegisters = 32;
  using Sum = std::int32_t __attribute__((vector_size(64)));

  static Sum hold(Ints x) { return reinterpret_cast<Sum>(x.data); }
  static Ints value(Sum x) { return reinterpret_cast<__m512i>(x); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static void transpose(Floats (&x)[16]) {
    __m512i rows[16];
    for (int i = 0; i < 16; ++i) rows[i] = _mm512_castps_si512(x[i]);
    transpose_dwords(rows);
    for (int i = 0; i < 16; ++i) x[i] = _mm512_castsi512_ps(rows[i]);
  }
  static constexpr bool kScalesByFloor = true;
  static Floats fraction(Floats x) {
    return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  }
  // Takes hundreds of cycles where the result is subnormal: exponents are clamped before.
  static Floats scale_by_floor(Floats p, Floats x) { return _mm512_scalef_ps(p, x); }
  static Ints to_ints(Floats x) { return _mm512_cvtps_epi32(x); }  // nearest, ties to even
  static float reduce_max(Floats x) { return _mm512_reduce_max_ps(x); }
  static std::int32_t reduce_add(Ints x) { return _mm512_reduce_add_epi32(x); }
  template <int kBits>
  static Ints shift_right(Ints x) {
    return _mm512_srli_epi32(x, kBits);
  }
  template <std::uint32_t kMask>
  static Ints merge_bits(Ints a, Ints b) {
    constexpr int kSelect = 0xCA;  // first operand ? second : third
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(static_cast<int>(kMask)), a, b, kSelect);
  }
  static Ints dot_pairs(Ints sum, Ints a, Ints b) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
  }
  // sum += four u8 of `a` by four s8 of `b`, exactly, where instructions of bytes saturate.
  static Ints dot_quads(Ints sum, Ints a, Ints b) {
    const __m512i even = _mm512_madd_epi16(_mm512_and_si512(a, _mm512_set1_epi16(0xFF)),
                                           _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(a, 8), _mm512_srai_epi16(b, 8));
    return _mm512_add_epi32(sum, _mm512_add_epi32(even, odd));
  }

  // Vectors of bytes, as decoding takes them (vector_products.hpp).
  static Ints load_bytes(const std::int8_t* from) { return _mm512_loadu_si512(from); }
  static Ints load_unaligned(const std::int32_t* from) { return _mm512_loadu_si512(from); }
  // Neighbouring elements of kBits of a and b in turns, from the lower half of each 128 bits.
  template <int kBits>
  static Ints unpack_low(Ints a, Ints b) {
    if constexpr (kBits == 8) return _mm512_unpacklo_epi8(a, b);
    if constexpr (kBits == 16) return _mm512_unpacklo_epi16(a, b);
    if constexpr (kBits == 32) return _mm512_unpacklo_epi32(a, b);
    if constexpr (kBits == 64) return _mm512_unpacklo_epi64(a, b);
  }
  template <int kBits>
  static Ints unpack_high(Ints a, Ints b) {
    if constexpr (kBits == 8) return _mm512_unpackhi_epi8(a, b);
    if constexpr (kBits == 16) return _mm512_unpackhi_epi16(a, b);
    if constexpr (kBits == 32) return _mm512_unpackhi_epi32(a, b);
    if constexpr (kBits == 64) return _mm512_unpackhi_epi64(a, b);
  }
  // Sums of the four quarters of each of four vectors, in order.
  static Ints sum_quarters(const Ints (&x)[4]) {
    const auto pair = [](Ints a, Ints b) -> Ints {
      return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
    };
    return pair(pair(x[0], x[1]), pair(x[2], x[3]));
  }
  template <int kQuarter>
  static void store_quarter(float* to, Ints x) {
    _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm512_extracti32x4_epi32(x, kQuarter));
  }
  static void store_low_bytes(std::uint8_t* to, Ints x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x));
  }
};

}  // namespace
}  // namespace qattn::cpu
