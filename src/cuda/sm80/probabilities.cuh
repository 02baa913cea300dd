// Scores to probabilities, as planes of bytes (tile::Plane).
#pragma once

#include <cstdint>

#include "cuda/ptx/cvt_x2.cuh"
#include "cuda/ptx/ex2.cuh"
#include "cuda/ptx/prmt.cuh"
#include "cuda/sm80/state.cuh"
#include "cuda/tile/quantize.cuh"
#include "cuda/tile/scores.cuh"

namespace qattn::cuda::sm80 {

/// Scores of the thread's two rows with 8 * kTiles keys, as in tile::Scores.
template <int kTiles>
using ScoreTiles = std::int32_t[kTiles][4];

/// Four probabilities of one row, as 2^-24 times them: entries 2 * row and 2 * row + 1 of tiles n
/// and n + 1. kSubtract is needed where a row is not folded.
template <bool kSubtract, int kTiles>
__device__ __forceinline__ void four_probabilities(float (&p)[4], const ScoreTiles<kTiles>& s,
                                                   int n, int row, float exponent,
                                                   const GroupScale& group) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float score = __int_as_float(s[n + i / 2][2 * row + i % 2]);
    if constexpr (kSubtract) score -= group.subtract[row];
    p[i] = ptx::ex2(fmaf(score, exponent, group.offset[row]));
  }
}

/// 8-bit probabilities of 8 * kTiles keys, from operand register `first` of the plane on. As
/// halves, multiples of 2^-24 up to 255 are subnormal: their bits are the integers, rounded to
/// nearest even by the conversion.
template <bool kSubtract, int kTiles>
__device__ __forceinline__ void quantize_8(tile::Plane& plane, int first,
                                           const ScoreTiles<kTiles>& s, const RowState& state,
                                           const GroupScale& group) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    float p[4];
    four_probabilities<kSubtract, kTiles>(p, s, i / 2 * 2, i % 2, state.exponent(i % 2), group);
    plane.a[first + i] = ptx::prmt(ptx::cvt_f16x2(p[0], p[1]), ptx::cvt_f16x2(p[2], p[3]), 0x6420);
  }
}

/// 16-bit probabilities, 256 * high + low, in units of 1/256 of 8-bit ones; rounded to nearest even
/// by adding 1.5 * 2^23.
template <bool kSubtract, int kTiles>
__device__ __forceinline__ void quantize_16(tile::Plane& high, tile::Plane& low, int first,
                                            const ScoreTiles<kTiles>& s, const RowState& state,
                                            const GroupScale& group) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    float p[4];
    four_probabilities<kSubtract, kTiles>(p, s, i / 2 * 2, i % 2, state.exponent(i % 2), group);
    std::uint32_t bits[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) bits[j] = __float_as_uint(fmaf(p[j], 0x1p32F, 12582912.0F));
    const std::uint32_t p01 = ptx::prmt(bits[0], bits[1], 0x5410);
    const std::uint32_t p23 = ptx::prmt(bits[2], bits[3], 0x5410);
    low.a[first + i] = ptx::prmt(p01, p23, 0x6420);
    high.a[first + i] = ptx::prmt(p01, p23, 0x7531);
  }
}

}  // namespace qattn::cuda::sm80
