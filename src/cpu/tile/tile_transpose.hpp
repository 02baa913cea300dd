// Transpositions that the operands of the tile registers need, in AVX-512 (f, bw).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/scratch.hpp"
#include "cpu/tile/avx512_transpose.hpp"
#include "cpu/tile/tile_registers.hpp"
#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

// Columns [d, d + 64) of a row, zeros beyond head_dim.
inline __m512i load_columns(const std::int8_t* row, std::int64_t d, std::int64_t head_dim) {
  const std::int64_t left = head_dim - d;
  if (left >= kTileRowBytes) return _mm512_loadu_si512(row + d);
  return _mm512_maskz_loadu_epi8((std::uint64_t{1} << left) - 1, row + d);
}

// Columns [d, d + 64) of 64 rows become 64 rows of 64 bytes, kGroupKeys apart; as many of them as
// head_dim, padded, has.
inline void transpose_values(std::int8_t* to, const std::int8_t* const* rows, std::int64_t d,
                             std::int64_t head_dim) {
  // Bytes of four rows side by side, for 16 quads of rows. Unpacking works within 128-bit lanes:
  // quads[j] holds columns 16 * lane + 4 * j + (0..3).
  alignas(64) __m512i quads[4][16];
  for (int quad = 0; quad < 16; ++quad) {
    const std::int8_t* const* row = rows + 4 * quad;
    const __m512i a = load_columns(row[0], d, head_dim);
    const __m512i b = load_columns(row[1], d, head_dim);
    const __m512i c = load_columns(row[2], d, head_dim);
    const __m512i e = load_columns(row[3], d, head_dim);
    const __m512i ab_low = _mm512_unpacklo_epi8(a, b);
    const __m512i ab_high = _mm512_unpackhi_epi8(a, b);
    const __m512i ce_low = _mm512_unpacklo_epi8(c, e);
    const __m512i ce_high = _mm512_unpackhi_epi8(c, e);
    quads[0][quad] = _mm512_unpacklo_epi16(ab_low, ce_low);
    quads[1][quad] = _mm512_unpackhi_epi16(ab_low, ce_low);
    quads[2][quad] = _mm512_unpacklo_epi16(ab_high, ce_high);
    quads[3][quad] = _mm512_unpackhi_epi16(ab_high, ce_high);
  }
  const std::int64_t lanes = (padded_columns(head_dim) - d) / 16;
  for (int j = 0; j < 4; ++j) {
    transpose_dwords(quads[j]);
    for (int lane = 0; lane < (lanes < 4 ? lanes : 4); ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int column = 16 * lane + 4 * j + i;
        _mm512_store_si512(to + column * kGroupKeys, quads[j][4 * lane + i]);
      }
    }
  }
}

}  // namespace
}  // namespace qattn::cpu
