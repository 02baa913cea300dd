// Integer scores of a consumer warpgroup with a tile of keys.
#pragma once

#include <cstdint>

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
};

/// Starts the product of the warpgroup's 64 rows with a tile of keys. |s| <= 128 * 128 * 256 =
/// 2^22.
template <int kHeadDim, int kKeys>
__device__ __forceinline__ void begin_scores(Scores<kKeys>& s, std::uint32_t q_tile,
                                             std::uint32_t k_tile) {
  ptx::wgmma_ready(s.value);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kHeadDim / 32; ++step) {
    ptx::wgmma_s8_s8(s.value, Tile<kHeadDim, 64>::k_major(q_tile, 0, step),
                     Tile<kHeadDim, kKeys>::k_major(k_tile, 0, step), step > 0);
  }
  ptx::wgmma_commit();
}

/// Rows of a negative factor: the largest score is to be the largest integer. No score is INT_MIN.
template <int kKeys, typename RowScale>
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

/// Whether the thread's entry i of tile n is a key that its row does not see; limit[row] is the
/// number of keys of this tile that it does.
__device__ __forceinline__ bool is_hidden(int n, int i, const int (&limit)[2]) {
  return 8 * n + static_cast<int>(threadIdx.x % 4) * 2 + i % 2 >= limit[i / 2];
}

template <int kKeys>
__device__ __forceinline__ void hide_scores(Scores<kKeys>& s, const int (&limit)[2]) {
#pragma unroll
  for (int n = 0; n < Scores<kKeys>::kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (is_hidden(n, i, limit)) s.value[n][i] = kHidden;
    }
  }
}

/// The exponents of hidden scores are only as low as the row's factor makes them.
template <int kKeys>
__device__ __forceinline__ void hide_probabilities(Scores<kKeys>& s, const int (&limit)[2]) {
#pragma unroll
  for (int n = 0; n < Scores<kKeys>::kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (is_hidden(n, i, limit)) s.value[n][i] = 0;
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
    even = max(even, odd);
    // The four lanes of a quad share a row.
    even = max(even, __shfl_xor_sync(0xFFFFFFFFU, even, 1));
    largest[row] = max(even, __shfl_xor_sync(0xFFFFFFFFU, even, 2));
  }
}

/// Rows that need it: scores relative to their reference. The differences of visible scores are
/// below 2^23; those of hidden ones may wrap.
template <int kKeys, typename RowScale>
__device__ __forceinline__ void relate_scores(Scores<kKeys>& s, const RowScale& scale,
                                              const std::int32_t (&reference)[2]) {
  if (!scale.special) return;
#pragma unroll
  for (int n = 0; n < Scores<kKeys>::kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t subtracted =
          scale.relative[i / 2] ? static_cast<std::uint32_t>(reference[i / 2]) : 0U;
      s.value[n][i] =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(s.value[n][i]) - subtracted);
    }
  }
}

/// 2^(s * exponent - offset) in place of the scores.
template <int kKeys, typename RowScale>
__device__ __forceinline__ void exponentiate(Scores<kKeys>& s, const RowScale& scale,
                                             const float (&offset)[2]) {
#pragma unroll
  for (int n = 0; n < Scores<kKeys>::kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float score = static_cast<float>(s.value[n][i]);
      s.set_probability(n, i, ptx::ex2(fmaf(score, scale.exponent[i / 2], -offset[i / 2])));
    }
  }
}

}  // namespace qattn::cuda::sm90
