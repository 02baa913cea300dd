// The rows of a thread: which they are, and how they are finished.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/tile/scheduler.cuh"
#include "cuda/tile/softmax.cuh"
#include "cuda/tile/store.cuh"

namespace qattn::cuda::tile {

/// What a thread knows about its two rows.
struct Rows {
  int index[2];  // in the block
  int query[2];
  int head[2];   // query head
  int limit[2];  // keys that the row sees
};

/// Warp w of the block, counted from its first thread, has rows 16w to 16w + 15.
__device__ __forceinline__ Rows rows_of_thread(const AttentionParams& params,
                                               const BlockWork& work) {
  Rows rows;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    rows.index[row] =
        static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * row;
    const RowPlace place = work.place(rows.index[row]);
    rows.query[row] = place.query;
    rows.head[row] = static_cast<int>(work.head_kv) * params.group_size + place.head_in_group;
    rows.limit[row] = visible_keys(params, place.query);
  }
  return rows;
}

/// Writes the thread's part of its rows, and their lse: `log_sum(row)` of those that see a key.
template <int kHeadDim, typename LogSum>
__device__ __forceinline__ void store_rows(const AttentionParams& params, const BlockWork& work,
                                           const Rows& rows, const float (&sum)[2],
                                           const ScoreFactor (&factor)[2],
                                           const Output<kHeadDim>& out, LogSum log_sum) {
  const std::int64_t heads_q = static_cast<std::int64_t>(params.heads_kv) * params.group_size;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    if (rows.index[row] >= work.rows) continue;
    const RowFinish finish = {sum[row] > 0.0F, factor[row].finite ? 1.0F / sum[row] : NAN,
                              params.v.scale[work.head_kv]};
    const OutputPointer out_row = params.out + (work.batch * params.out_batch_stride +
                                                rows.query[row] * params.out_seq_stride +
                                                rows.head[row] * params.out_head_stride);
    store_row(out_row, params.out_aligned, params.head_dim, out, row, finish);
    if (params.lse != nullptr && threadIdx.x % 4 == 0) {
      params.lse[(work.batch * heads_q + rows.head[row]) * params.seq_q + rows.query[row]] =
          !finish.any_key       ? -INFINITY
          : !factor[row].finite ? NAN
                                : log_sum(row);
    }
  }
}

}  // namespace qattn::cuda::tile
