// Probabilities as planes of bytes, laid out as the A operand of m16n8k32.
#pragma once

#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/ptx/ex2.cuh"
#include "cuda/ptx/mma_s8.cuh"
#include "cuda/ptx/prmt.cuh"
#include "cuda/tile/scores.cuh"

namespace qattn::cuda::tile {

/// A plane of bytes for the 16 rows and 128 keys of a warp, four A operands. Step i covers keys
/// 32 * i to 32 * i + 31 in an order of its own: logical column 4t + j (j < 4, t = lane % 4) is key
/// 2t + j for j < 2 and key 8 + 2t + j - 2 for the others, and columns 16 to 31 the same of the
/// next 16 keys. Score accumulators become operands without leaving their thread; V follows the
/// same order (accumulate.cuh).
struct Plane {
  static constexpr int kSteps = kGroupKeys / 32;
  std::uint32_t a[4 * kSteps];
};

/// The 16 bytes of Plane::a that belong together: four scores of one row.
struct Quad {
  int tile;   // the scores are entries 2 * row, 2 * row + 1 of tiles `tile` and `tile` + 1
  int row;    // 0 or 1
  int index;  // in Plane::a
};

__device__ constexpr Quad quad(int i) {
  // a[4 * step + 2 * half + row]: operand registers 0, 1 hold keys 0-15 of a step, 2, 3 the rest.
  return {i / 2 * 2, i % 2, i};
}

/// round(one * 2^(exponent * (score - max))) in the low bits; log2_one = log2(one). The difference
/// is an exact integer and is taken before it is scaled. Adding 1.5 * 2^23 rounds to an integer,
/// ties to even.
__device__ __forceinline__ std::uint32_t probability(float score, float max, float exponent,
                                                     float log2_one) {
  return __float_as_uint(ptx::ex2(fmaf(score - max, exponent, log2_one)) + 12582912.0F);
}

/// 16-bit probabilities: 256 * high + low.
__device__ __forceinline__ void quantize16(std::uint32_t& high, std::uint32_t& low, const Scores& s,
                                           const Quad& q, float max, float exponent) {
  const float log2_one = 15.9943534F;  // log2(65280)
  std::uint32_t p[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    p[i] = probability(s.at(q.tile + i / 2, 2 * q.row + i % 2), max, exponent, log2_one);
  }
  const std::uint32_t p01 = ptx::prmt(p[0], p[1], 0x5410);
  const std::uint32_t p23 = ptx::prmt(p[2], p[3], 0x5410);
  low = ptx::prmt(p01, p23, 0x6420);
  high = ptx::prmt(p01, p23, 0x7531);
}

/// Sums of a plane over the keys, for the thread's two rows: a product with ones.
__device__ __forceinline__ void row_sums(std::int32_t (&sums)[2], const Plane& plane) {
  const std::uint32_t ones = 0x01010101U;
  std::int32_t d[4] = {0, 0, 0, 0};
#pragma unroll
  for (int step = 0; step < Plane::kSteps; ++step) {
    ptx::mma_m16n8k32_u8_s8(d, plane.a + 4 * step, ones, ones);
  }
  sums[0] = d[0];
  sums[1] = d[2];
}

}  // namespace qattn::cuda::tile
