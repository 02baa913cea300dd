// Integer scores of 16 queries and 128 keys in the registers of a warp.
#pragma once

#include <cstdint>

#include "cuda/attention.hpp"

namespace qattn::cuda::tile {

/// Sums start at the bits of +-12582912 (1.5 * 2^23): read as a float, base + s is then
/// +-(12582912 + s), exactly, for |s| <= 2^22, which is 128 * 128 * 256. So no score is converted,
/// and for rows whose factor is negative the sign bit makes the largest float the largest score.
inline constexpr float kScoreBase = 12582912.0F;

/// Bits that the sums of a row start with.
__device__ __forceinline__ std::int32_t score_base_bits(bool negative_factor) {
  return __float_as_int(negative_factor ? -kScoreBase : kScoreBase);
}

/// Scores of the two rows of this thread (lane / 4 and 8 + lane / 4 of the warp's 16): entry
/// 2 * row + i of tile n is key 8 * n + 2 * (lane % 4) + i.
struct Scores {
  static constexpr int kTiles = kGroupKeys / 8;
  std::int32_t bits[kTiles][4];

  __device__ float at(int tile, int entry) const { return __int_as_float(bits[tile][entry]); }
};

}  // namespace qattn::cuda::tile
