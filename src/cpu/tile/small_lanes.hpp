// The lanes of a SmallTask: sixteen rows in 512 bits, or eight in 256. Eight cost half of sixteen
// where the processor splits vectors of 512 bits (Zen 4), and as much or less elsewhere.
#pragma once

#include <immintrin.h>

#include "cpu/tile/avx512vnni_lanes.hpp"
#include "cpu/tile/xsimd_lanes.hpp"

namespace qattn::cpu {
namespace {

struct SmallLanes16 : Avx512VnniLanes {
  // The larger of two negative floats, by their bits: any of Zen 4's four pipes takes this, two of
  // them a float maximum.
  static Floats max_negative(Floats a, Floats b) {
    return _mm512_castsi512_ps(_mm512_min_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
  // max(a, b) in the lanes where more > than, else a.
  static Floats max_where(Floats a, Floats b, Ints more, Ints than) {
    return _mm512_mask_max_ps(a, _mm512_cmpgt_epi32_mask(more, than), a, b);
  }
  static unsigned bits(Mask mask) { return static_cast<__mmask16>(mask); }
  // As all lanes of a block, those above unspecified; and back.
  static __m512i widen(Ints x) { return x; }
  static Ints narrow(__m512i x) { return x; }
  static Ints max(Ints a, Ints b) { return _mm512_max_epi32(a, b); }
  using Avx512VnniLanes::max;
  static Ints shift_left_by(Ints x, Ints bits) { return _mm512_sllv_epi32(x, bits); }

  // Within every 128 bits, the elements of `a` in front of those of `b`.
  static Ints narrow_signed(Ints a, Ints b) { return _mm512_packs_epi32(a, b); }
  static Ints narrow_unsigned(Ints a, Ints b) { return _mm512_packus_epi32(a, b); }
  static Ints narrow_to_bytes(Ints a, Ints b) { return _mm512_packus_epi16(a, b); }
  static Ints interleave_low_words(Ints a, Ints b) { return _mm512_unpacklo_epi16(a, b); }
  static Ints interleave_high_words(Ints a, Ints b) { return _mm512_unpackhi_epi16(a, b); }
  static Ints shuffle_bytes(Ints x, __m128i order) {
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(order));
  }
};

struct SmallLanes8 : XsimdLanes<xsimd::avx2> {
  using Sum = std::int32_t __attribute__((vector_size(32)));

  static Sum hold(Ints x) { return reinterpret_cast<Sum>(x.data); }
  static Ints value(Sum x) { return reinterpret_cast<__m256i>(x); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static constexpr bool kScalesByFloor = true;
  static Floats fraction(Floats x) {
    return _mm256_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  }
  static Floats scale_by_floor(Floats p, Floats x) { return _mm256_scalef_ps(p, x); }
  static Ints to_ints(Floats x) { return _mm256_cvtps_epi32(x); }
  static Ints dot_quads(Ints sum, Ints rows, Ints panel) {
    return _mm256_dpbusd_epi32(sum.data, rows.data, panel.data);
  }
  static Floats max_negative(Floats a, Floats b) {
    return _mm256_castsi256_ps(_mm256_min_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
  static Floats max_where(Floats a, Floats b, Ints more, Ints than) {
    return _mm256_mask_max_ps(a, _mm256_cmpgt_epi32_mask(more, than), a, b);
  }
  static unsigned bits(Mask mask) { return static_cast<unsigned>(_mm256_movemask_ps(mask)); }
  static __m512i widen(Ints x) { return _mm512_castsi256_si512(x); }
  static Ints narrow(__m512i x) { return _mm512_castsi512_si256(x); }
  static Ints max(Ints a, Ints b) { return _mm256_max_epi32(a, b); }
  using XsimdLanes<xsimd::avx2>::max;
  static Ints shift_left_by(Ints x, Ints bits) { return _mm256_sllv_epi32(x, bits); }
  static Ints narrow_signed(Ints a, Ints b) { return _mm256_packs_epi32(a, b); }
  static Ints narrow_unsigned(Ints a, Ints b) { return _mm256_packus_epi32(a, b); }
  static Ints narrow_to_bytes(Ints a, Ints b) { return _mm256_packus_epi16(a, b); }
  static Ints interleave_low_words(Ints a, Ints b) { return _mm256_unpacklo_epi16(a, b); }
  static Ints interleave_high_words(Ints a, Ints b) { return _mm256_unpackhi_epi16(a, b); }
  static Ints shuffle_bytes(Ints x, __m128i order) {
    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(order));
  }
};

}  // namespace
}  // namespace qattn::cpu
