// Integer scores of a consumer warpgroup with a group of keys.
#pragma once

#include <cstdint>

#include "cuda/ptx/ex2.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/ptx/wgmma_s8.cuh"
#include "cuda/sm90/layout.cuh"
#include "cuda/sm90/row_scale.cuh"

namespace qattn::cuda::sm90 {

/// Scores of the thread's two rows, lane / 4 and 8 + lane / 4 of its warp's 16: entry 2 * row + i
/// of tile n is key 8 * n + 2 * (lane % 4) + i. Probabilities take their place.
template <int kKeys>
struct Scores {
  static constexpr int kTiles = kKeys / 8;
  std::int32_t value[kTiles][4];

  __device__ float probability(int tile, int entry) const {
    return __int_as_float(value[tile][entry]);
  }
  __device__ void set_probability(int tile, int entry, float p) {
    value[tile][entry] = __float_as_int(p);
  }

  /// Part number `index` of kPartKeys keys.
  template <int kPartKeys>
  __device__ Scores<kPartKeys>& part(int index) {
    static_assert(kKeys % kPartKeys == 0);
    return *reinterpret_cast<Scores<kPartKeys>*>(&value[index * Scores<kPartKeys>::kTiles]);
  }
};

/// Starts the product of the warpgroup's 64 rows with kKeys keys of a tile of kTileKeys, the first
/// of which is at `k_rows`. |s| <= 128 * 128 * 256 = 2^22.
template <int kHeadDim, int kTileKeys, int kKeys>
__device__ __forceinline__ void begin_scores(Scores<kKeys>& s, std::uint32_t q_tile,
                                             std::uint32_t k_rows) {
  ptx::wgmma_ready(s.value);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kHeadDim / 32; ++step) {
    ptx::wgmma_s8_s8(s.value, Tile<kHeadDim, 64>::k_major(q_tile, 0, step),
                     Tile<kHeadDim, kTileKeys>::k_major(k_rows, 0, step), step > 0);
  }
  ptx::wgmma_commit();
}

/// Rows of a negative factor: the largest score is to be the largest integer.
template <int kKeys>
__device__ __forceinline__ void orient_scores(Scores<kKeys>& s, const RowScale& scale) {
  if (!scale.special) return;
#pragma unroll
  for (int n = 0; n < Scores<kKeys>::kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s.value[n][i] = scale.negative[i / 2] ? -s.value[n][i] : s.value[n][i];
    }
  }
}

/// limit[row] is the number of keys of this group that the row sees.
template <int kKeys>
__device__ __forceinline__ void hide_scores(Scores<kKeys>& s, const int (&limit)[2]) {
  const int first = static_cast<int>(threadIdx.x % 4) * 2;
  const int own_limit[2] = {limit[0] - first, limit[1] - first};
#pragma unroll
  for (int n = 0; n < Scores<kKeys>::kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (8 * n + i % 2 >= own_limit[i / 2]) s.value[n][i] = kHidden;
    }
  }
}

/// Largest score of each of the thread's rows.
template <int kKeys>
__device__ __forceinline__ void largest_scores(std::int32_t (&largest)[2], const Scores<kKeys>& s) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    // Two chains, and three operands an instruction.
    std::int32_t even = s.value[0][2 * row];
    std::int32_t odd = s.value[0][2 * row + 1];
#pragma unroll
    for (int n = 1; n + 1 < Scores<kKeys>::kTiles; n += 2) {
      even = __vimax3_s32(even, s.value[n][2 * row], s.value[n + 1][2 * row]);
      odd = __vimax3_s32(odd, s.value[n][2 * row + 1], s.value[n + 1][2 * row + 1]);
    }
    constexpr int kLast = Scores<kKeys>::kTiles - 1;
    static_assert(kLast % 2 == 1);
    even = __vimax3_s32(even, s.value[kLast][2 * row], s.value[kLast][2 * row + 1]);
    largest[row] = max(even, odd);
  }
  // The four lanes of a quad share a row.
#pragma unroll
  for (int mask = 1; mask <= 2; mask *= 2) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      largest[row] = max(largest[row], __shfl_xor_sync(0xFFFFFFFFU, largest[row], mask));
    }
  }
}

/// Rows that need it: scores relative to their reference, as floats less their bias.
template <int kKeys>
__device__ __forceinline__ void relate_scores(Scores<kKeys>& s, const RowScale& scale,
                                              const std::int32_t (&reference)[2]) {
  if (!scale.special) return;
#pragma unroll
  for (int n = 0; n < Scores<kKeys>::kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int32_t score = s.value[n][i];
      const float related = static_cast<float>(score - reference[i / 2]);  // below 2^23
      const std::uint32_t bits = __float_as_uint(related) - static_cast<std::uint32_t>(kScoreBias);
      if (scale.relative[i / 2] && score != kHidden)
        s.value[n][i] = static_cast<std::int32_t>(bits);
    }
  }
}

/// 2^(f * exponent - offset) in place of the scores, f as for RowScale. `zero` is 0 and known only
/// when exponentials may start.
template <int kKeys>
__device__ __forceinline__ void exponentiate(Scores<kKeys>& s, const RowScale& scale,
                                             const float (&offset)[2], std::int32_t zero) {
  const std::int32_t bias = kScoreBias + zero;
#pragma unroll
  for (int n = 0; n < Scores<kKeys>::kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float biased = __int_as_float(s.value[n][i] + bias);
      s.set_probability(n, i, ptx::ex2(fmaf(biased, scale.exponent[i / 2], -offset[i / 2])));
    }
  }
}

/// 0, known only when the exponentials of the last keys are.
template <int kKeys>
__device__ __forceinline__ std::int32_t last_exponentials(const Scores<kKeys>& s) {
  constexpr int kLast = Scores<kKeys>::kTiles - 1;
  // None is negative.
  return (s.value[kLast][0] | s.value[kLast][1] | s.value[kLast][2] | s.value[kLast][3]) >> 31;
}

}  // namespace qattn::cuda::sm90
