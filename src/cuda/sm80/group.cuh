// The 16 rows of a warp: a group of keys from scores to the running output.
#pragma once

#include <cstdint>

#include "core/problem.hpp"
#include "cuda/sm80/probabilities.cuh"
#include "cuda/sm80/products.cuh"
#include "cuda/sm80/state.cuh"
#include "cuda/tile/rows.cuh"

namespace qattn::cuda::sm80 {

/// State and output of the rows of this thread's warp.
template <int kHeadDim>
class WarpRows {
 public:
  /// `q_rows` is the shared address of the warp's rows of q.
  __device__ WarpRows(std::uint32_t q_rows, const tile::ScoreFactor (&factor)[2])
      : q_rows_(q_rows), base_(factor[0].natural < 0, factor[1].natural < 0), state_(factor) {
    general_ = __any_sync(0xFFFFFFFFU, factor[0].natural < 0 || factor[1].natural < 0 ||
                                           !state_.folded(0) || !state_.folded(1));
  }

  /// Adds the keys of a tile. A row sees `limit[row]` keys from the tile's first on; `partial` says
  /// that some row does not see all of the tile's, `first` that it is the first tile. `values()`
  /// gives the shared address of their V once the keys are no longer needed.
  template <Precision kPrecision, typename Values>
  __device__ __forceinline__ void add_tile(std::uint32_t k_tile, const int (&limit)[2],
                                           bool partial, bool first, Values values) {
    ScoreTiles<kGroupKeys / 8> s;
    multiply_keys<kHeadDim, kHeadDim / 32>(s, q_rows_, k_tile, base_);
    if (partial) mask_scores(s, limit);
    float largest[2];
    if (general_) {
      row_maxima<true>(largest, s);
    } else {
      row_maxima<false>(largest, s);
    }
    const GroupScale group = state_.update(largest, first, out_);
    tile::Plane high;
    if constexpr (kPrecision == Precision::high) {
      tile::Plane low;
      if (general_) {
        quantize_16<true>(high, low, 0, s, state_, group);
      } else {
        quantize_16<false>(high, low, 0, s, state_, group);
      }
      add_planes(high, low, values(), group);
    } else {
      if (general_) {
        quantize_8<true>(high, 0, s, state_, group);
      } else {
        quantize_8<false>(high, 0, s, state_, group);
      }
      std::int32_t sums[2];
      tile::row_sums(sums, high);
      // Bytes lose the keys that are more than ln 510 below the maximum. Where these may be many,
      // because the bytes sum to less than 5 a key, the row gets 16 bits; so it does where it sees
      // only some of the keys. The choice is the row's own: the warp only skips what none of its
      // rows needs.
      bool refine_row[2];
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        refine_row[row] = limit[row] < kGroupKeys || sums[row] < kLeastSum;
      }
      if (__any_sync(0xFFFFFFFFU, refine_row[0] || refine_row[1])) {
        tile::Plane low;
        refine(high, low, refine_row, k_tile, limit, group);
        add_planes(high, low, values(), group);
      } else {
        const float weight[2] = {256.0F * group.weight[0], 256.0F * group.weight[1]};
        state_.add(sums, weight);
        multiply_values<1>(out_, high, high, values(), weight);
      }
    }
  }

  __device__ __forceinline__ void store(const AttentionParams& params, const tile::BlockWork& work,
                                        const tile::Rows& rows,
                                        const tile::ScoreFactor (&factor)[2]) const {
    const float sum[2] = {state_.sum(0), state_.sum(1)};
    tile::store_rows(params, work, rows, sum, factor, out_,
                     [&](int row) { return state_.log_sum(row, factor[row]); });
  }

 private:
  static constexpr std::int32_t kLeastSum = 5 * kGroupKeys;

  /// Adds probabilities of 16 bits.
  __device__ __forceinline__ void add_planes(const tile::Plane& high, const tile::Plane& low,
                                             std::uint32_t v_tile, const GroupScale& group) {
    std::int32_t sums[2];
    std::int32_t low_sums[2];
    tile::row_sums(sums, high);
    tile::row_sums(low_sums, low);
#pragma unroll
    for (int row = 0; row < 2; ++row) sums[row] = 256 * sums[row] + low_sums[row];
    state_.add(sums, group.weight);
    multiply_values<2>(out_, high, low, v_tile, group.weight);
  }

  /// 16 bits for the rows that `refine_row` names; the others keep their bytes and get a low plane
  /// of 0, which changes nothing for them. The scores are computed again, 32 keys at a time: kept
  /// for this, they would take registers from every group.
  __device__ __forceinline__ void refine(tile::Plane& high, tile::Plane& low,
                                         const bool (&refine_row)[2], std::uint32_t k_tile,
                                         const int (&limit)[2], const GroupScale& group) const {
#pragma unroll
    for (int step = 0; step < tile::Plane::kSteps; ++step) {
      ScoreTiles<4> s;
      multiply_keys<kHeadDim, 1>(s, q_rows_, k_tile + 32 * step * kHeadDim, base_);
      mask_scores(s, {limit[0] - 32 * step, limit[1] - 32 * step});
      tile::Plane fine_high;
      quantize_16<true>(fine_high, low, 4 * step, s, state_, group);
#pragma unroll
      for (int i = 4 * step; i < 4 * step + 4; ++i) {
        high.a[i] = refine_row[i % 2] ? fine_high.a[i] : high.a[i];
        low.a[i] = refine_row[i % 2] ? low.a[i] : 0U;
      }
    }
  }

  std::uint32_t q_rows_;
  bool general_;  // some row of the warp is not folded or has a negative factor
  Base base_;
  RowState state_;
  tile::Output<kHeadDim> out_;
};

}  // namespace qattn::cuda::sm80
