// The sums of all warps of a block to finished rows in global memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/tile/scheduler.cuh"
#include "cuda/tile/store.cuh"
#include "cuda/tiny/group.cuh"
#include "cuda/tiny/policy.hpp"
#include "cuda/tiny/rows.cuh"

namespace qattn::cuda::tiny {

/// Shared memory of a block as generic pointers.
template <int kHeadDim>
struct Memory {
  using Policy = TinyPolicy<kHeadDim>;
  unsigned char* begin;

  __device__ Exchange& exchange() const { return *reinterpret_cast<Exchange*>(begin); }
  /// Keys and queries of a warp, later its sums.
  __device__ unsigned char* warp(int warp) const {
    return begin + Policy::kExchangeBytes + warp * Policy::kWarpBytes;
  }
};

/// Softmax state of a row and four of its columns.
struct RowState {
  float max;  // -infinity: no key
  float sum;  // in units of 1 / tile::kOne
  float value[4];
};

/// The state of a row, summed over the warps.
template <int kHeadDim>
__device__ __forceinline__ RowState join_warps(const Memory<kHeadDim>& memory, int row,
                                               int column) {
  using Policy = TinyPolicy<kHeadDim>;
  int4 total = make_int4(0, 0, 0, 0);
#pragma unroll
  for (int warp = 0; warp < Policy::kWarps; ++warp) {
    const auto* sums = reinterpret_cast<const std::int32_t*>(memory.warp(warp));
    const int4 part = *reinterpret_cast<const int4*>(sums + row * Policy::kSumStride + column);
    total = make_int4(total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w);
  }
  const Exchange& exchange = memory.exchange();
  return {largest_of(exchange.maximum[row]),
          static_cast<float>(sum_of(exchange.sum[row])),
          {static_cast<float>(total.x), static_cast<float>(total.y), static_cast<float>(total.z),
           static_cast<float>(total.w)}};
}

/// The row that a thread finishes, with all that can be known of it beforehand.
struct FinishedRow {
  int row;  // in the block
  bool exists;
  bool finite;
  float v_scale;
  OutputPointer out;
  float* lse;  // null: not wanted
};

/// A warp finishes eight rows, those of its threads: the first eight or the last.
__device__ __forceinline__ FinishedRow finished_row(const AttentionParams& params,
                                                    const tile::BlockWork& work, const Rows& rows,
                                                    int warp, int lane) {
  const bool last = warp % 2 != 0;
  const auto query = static_cast<std::uint32_t>(last ? rows.query[1] : rows.query[0]);
  const auto head = static_cast<std::uint32_t>(last ? rows.head[1] : rows.head[0]);
  FinishedRow finished = {};
  finished.row = lane / 4 + (last ? 8 : 0);
  finished.exists = finished.row < work.rows;
  finished.out =
      params.out + (work.batch * params.out_batch_stride + head * params.out_head_stride +
                    static_cast<std::int64_t>(distance(query, params.out_seq_stride)));
  // Computed here, while the tensors are on their way, and not where it is first used.
  asm volatile("" : "+l"(finished.out.data));
  if (params.lse != nullptr) {
    const std::uint64_t heads_q = static_cast<std::uint32_t>(params.heads_kv) * work.group_size;
    finished.lse = params.lse + (work.batch * heads_q + head) * params.seq_q + query;
  }
  return finished;
}

/// Finishes kColumns columns from `first_column` on, with the warps that have keys, 16 columns
/// of each row at a time.
template <int kHeadDim>
__device__ __forceinline__ void finish_columns(const AttentionParams& params,
                                               const FinishedRow& finished,
                                               const Memory<kHeadDim>& memory, int first_column,
                                               int warp, int lane) {
  using Policy = TinyPolicy<kHeadDim>;
  if (!finished.exists) return;
#pragma unroll 1
  for (int unit = warp; unit < Policy::kColumns / 8; unit += Policy::kWarps) {
    const int column = unit / 2 * 16 + lane % 4 * 4;
    const RowState state = join_warps(memory, finished.row, column);
    const tile::RowFinish finish = {state.sum > 0.0F, finished.finite ? 1.0F / state.sum : NAN,
                                    finished.v_scale};
    tile::Vector<float, 4> columns;
#pragma unroll
    for (int i = 0; i < 4; ++i) columns.value[i] = finish.value(state.value[i]);
    tile::store_columns(finished.out, params.out_aligned, params.head_dim, first_column + column,
                        columns);
    if (finished.lse != nullptr && first_column + column == 0) {
      const tile::ScoreFactor factor = {memory.exchange().natural[finished.row], finished.finite};
      *finished.lse = tile::log_sum(factor, state.max, state.sum);
    }
  }
}

}  // namespace qattn::cuda::tiny
