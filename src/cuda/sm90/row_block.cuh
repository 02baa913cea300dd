// The rows of a consumer warpgroup: what they see, and how they are finished.
#pragma once

#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/sm90/row_scale.cuh"
#include "cuda/tile/rows.cuh"
#include "cuda/tile/store.cuh"

namespace qattn::cuda::sm90 {

/// Keys from the warpgroup's point of view, counted from key 0. Rows see more keys the later they
/// come, so that the first row says what all see and the last what any does.
struct Visible {
  int any_keys = 0;  // that some row sees
  int all_keys = 0;  // that all rows see

  __device__ Visible(const AttentionParams& params, const tile::BlockWork& work, int warpgroup) {
    if (64 * warpgroup >= work.rows) return;
    all_keys = tile::visible_keys(params, work.place(64 * warpgroup).query);
    any_keys = tile::visible_keys(params, work.place(64 * warpgroup + 63).query);
  }
};

/// Running state of the thread's two rows: the score that probabilities are taken against, and the
/// sum of probabilities.
struct RowState {
  std::int32_t reference[2] = {kHidden, kHidden};
  float sum[2] = {0.0F, 0.0F};
};

/// Writes the thread's part of its rows, and their lse. `sum` of the state is that of the whole
/// row.
template <int kHeadDim>
__device__ __forceinline__ void finish_rows(const AttentionParams& params,
                                            const tile::BlockWork& work, const tile::Rows& rows,
                                            const RowScale& scale, const RowState& state,
                                            const tile::Output<kHeadDim>& out) {
  const std::int64_t heads_q = static_cast<std::int64_t>(params.heads_kv) * params.group_size;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    if (rows.index[row] >= work.rows) continue;
    const tile::ScoreFactor factor = tile::score_factor(
        params.softmax_scale, params.q.scale[rows.head[row]], params.k.scale[work.head_kv]);
    const float sum = state.sum[row];
    const tile::RowFinish finish = {sum > 0.0F, factor.finite ? 1.0F / sum : NAN,
                                    params.v.scale[work.head_kv]};
    const OutputPointer out_row = params.out + (work.batch * params.out_batch_stride +
                                                rows.query[row] * params.out_seq_stride +
                                                rows.head[row] * params.out_head_stride);
    tile::store_row(out_row, params.out_aligned, params.head_dim, out, row, finish);
    if (params.lse != nullptr && threadIdx.x % 4 == 0) {
      params.lse[(work.batch * heads_q + rows.head[row]) * params.seq_q + rows.query[row]] =
          scale.log_sum(row, factor, state.reference[row], sum);
    }
  }
}

}  // namespace qattn::cuda::sm90
