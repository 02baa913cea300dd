// Quads for the tile registers: signed queries, and codes that are plain integers, which the
// saturating packs of AVX-512 take.
#pragma once

#include <immintrin.h>

#include "cpu/tile/elements.hpp"

namespace qattn::cpu {
namespace {

template <class Lanes>
struct TileElements : Quads<Lanes> {
  using Ints = typename Lanes::Ints;
  static constexpr std::int32_t kQueryOffset = 0;
  static constexpr bool kPlainCodes = true;

  // One instruction per vector of codes; Quads takes one and a half.
  template <Codes kCodes>
  static void pack(Ints (&to)[Quads<Lanes>::operands(kCodes)],
                   const Ints (&codes)[Quads<Lanes>::kStep]) {
    if constexpr (kCodes == Codes::bytes) {
      const __m512i even = _mm512_packs_epi32(codes[0], codes[1]);
      const __m512i odd = _mm512_packs_epi32(codes[2], codes[3]);
      // Within each 128-bit lane: four rows of key 0, of key 1, ... become four keys of row 0, ...
      const __m512i order = _mm512_broadcast_i32x4(
          _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
      to[0] = Ints(_mm512_shuffle_epi8(_mm512_packus_epi16(even, odd), order));
    } else {
      Quads<Lanes>::template pack<kCodes>(to, codes);
    }
  }
};

}  // namespace
}  // namespace qattn::cpu
