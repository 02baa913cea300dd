// A block of the split kernel: a few rows over the keys of a split.
//
// The four warps share a group of 128 keys. Each computes the scores of 32 of them with all rows
// and quantises them against the maximum of the group; each multiplies the probabilities of all
// with a quarter of V's columns. Probabilities have 16 bits at both precisions (docs/numerics.md).
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/decode.hpp"
#include "cuda/decode/finish.cuh"
#include "cuda/decode/products.cuh"
#include "cuda/decode/ring.cuh"
#include "cuda/decode/scores.cuh"
#include "cuda/decode/softmax.cuh"
#include "cuda/decode/work.cuh"
#include "cuda/ptx/griddepcontrol.cuh"
#include "cuda/tile/load.cuh"
#include "cuda/tile/scores.cuh"
#include "cuda/tile/softmax.cuh"

namespace qattn::cuda::decode {

/// Row of the block that entry [n][i] of this thread's states is.
__device__ __forceinline__ int row_of_thread(int n, int i) {
  return 8 * n + static_cast<int>(threadIdx.x % 4) * 2 + i;
}

/// Starts copying the rows of q; those past the last one become 0.
template <int kHeadDim, typename Policy>
__device__ __forceinline__ void load_queries(const AttentionParams& params, const SplitWork& work,
                                             std::uint32_t q_tile) {
  using Layout = tile::Layout<kHeadDim>;
  const std::int8_t* base =
      params.q.data + work.rows.batch * params.q.batch_stride +
      static_cast<std::int64_t>(work.rows.head_kv) * params.group_size * params.q.head_stride;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Policy::kRows * Layout::kChunks;
       i += Policy::kThreads) {
    const int row = i / Layout::kChunks;
    const int chunk = i % Layout::kChunks;
    const tile::RowPlace place = work.rows.place(row);
    const std::int8_t* from = base + place.query * params.q.seq_stride +
                              place.head_in_group * params.q.head_stride + 16 * chunk;
    const std::uint32_t to = q_tile + Layout::offset(row, chunk);
    const int valid = row < work.rows.rows ? tile::valid_bytes(params.head_dim, chunk) : 0;
    if (params.q.alignment == Alignment::bytes_16) {
      ptx::cp_async_16(to, from, valid);
    } else {
      tile::load_unaligned_chunk(to, from, valid, params.q.alignment);
    }
  }
}

/// What a thread knows about its rows.
template <int kRowTiles>
struct RowFacts {
  std::int32_t base[kRowTiles][2];  // bits that the scores start with
  int limit[kRowTiles][2];          // keys that the row sees, counted from the split's first
};

template <int kRowTiles>
__device__ __forceinline__ RowTarget target_of(const SplitWork& work, int row) {
  return {work.rows.batch, work.rows.head_kv, work.rows.place(row)};
}

template <int kRowTiles>
__device__ __forceinline__ void prepare_rows(const AttentionParams& params, const SplitWork& work,
                                             RowFacts<kRowTiles>& rows,
                                             RowStates<kRowTiles>& state) {
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const RowTarget target = target_of<kRowTiles>(work, row_of_thread(n, i));
      const tile::ScoreFactor factor = target.factor(params);
      rows.base[n][i] = tile::score_base_bits(factor.natural < 0);
      rows.limit[n][i] = tile::visible_keys(params, target.place.query) - work.first_key;
      state.exponent[n][i] = tile::exponent_of(factor);
      state.max[n][i] = -INFINITY;
      state.sum[n][i] = 0.0F;
    }
  }
}

/// Writes the warp's columns, and warp 0 the states: to the workspace if there is more to merge,
/// else as the result.
template <int kHeadDim, typename Policy, int kRowTiles>
__device__ __forceinline__ void store_split(const DecodeParams& params, const SplitWork& work,
                                            const RowStates<kRowTiles>& state,
                                            const SplitOutput<Policy::kWarpBlocks, kRowTiles>& out,
                                            int first_block) {
  const int lane_column = static_cast<int>(threadIdx.x % 32) / 4 * 2;
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = row_of_thread(n, i);
      if (row >= work.rows.rows) continue;
      const float max = state.max[n][i];
      const float sum = state.sum[n][i];
      const bool merged = params.splits > 1;
      const std::int64_t partial = work.partial(params, row);
      const RowTarget target = target_of<kRowTiles>(work, row);
      tile::RowFinish finish;
      OutputPointer result;
      if (!merged) {
        finish = target.finish(params.attention, sum);
        result = target.out(params.attention);
      }
#pragma unroll
      for (int block = 0; block < Policy::kWarpBlocks; ++block) {
        const int column = 16 * (first_block + block) + lane_column;
        const Columns<2> sums = {out.value[block][n][i], out.value[block][n][2 + i]};
        if (merged) {
          *reinterpret_cast<Columns<2>*>(params.outputs + partial * kHeadDim + column) = sums;
        } else {
          store_columns(params.attention, result, column, sums, finish);
        }
      }
      if (threadIdx.x >= 4) continue;  // one thread of every row
      if (merged) {
        params.states[partial] = {max, sum};
      } else {
        target.write_lse(params.attention, max, sum);
      }
    }
  }
}

/// The split kernel.
template <int kHeadDim, int kRowTiles>
__device__ __forceinline__ void run_split(const DecodeParams& params, unsigned char* shared) {
  using Policy = DecodePolicy<kHeadDim, kRowTiles>;
  if (params.splits > 1) ptx::griddepcontrol_launch_dependents();  // the merge
  const AttentionParams& attention = params.attention;
  const SplitWork work = split_work<Policy::kRows>(params, blockIdx.x);
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  const int first_block = warp * Policy::kWarpBlocks;

  auto* operands = reinterpret_cast<ProbabilityOperand*>(shared);
  auto* maxima = reinterpret_cast<float*>(shared + Policy::kProbabilityBytes);
  const auto q_tile = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) +
                      Policy::kProbabilityBytes + Policy::kMaximaBytes;
  SplitRing<kHeadDim, Policy> ring(attention, q_tile + Policy::kQueryBytes, work);
  load_queries<kHeadDim, Policy>(attention, work, q_tile);
  ring.start();

  RowFacts<kRowTiles> rows;
  RowStates<kRowTiles> state;
  prepare_rows(attention, work, rows, state);
  SplitOutput<Policy::kWarpBlocks, kRowTiles> out;
  // The first row sees the fewest keys.
  const int limit_min = tile::visible_keys(attention, work.rows.place(0).query) - work.first_key;

#pragma unroll 1
  for (int index = 0; index < work.tiles; ++index) {
    const int first_key = index * kGroupKeys;
    const int warp_key = warp * Policy::kWarpKeys;
    KeyScores<kRowTiles> s;
    const GroupTile k_tile = ring.take();
    key_scores<kHeadDim>(s, q_tile, k_tile.rows<kHeadDim>(warp_key), rows.base);
    if (limit_min - first_key < kGroupKeys) {
      int limit[kRowTiles][2];
#pragma unroll
      for (int x = 0; x < 2 * kRowTiles; ++x) {
        limit[x / 2][x % 2] = rows.limit[x / 2][x % 2] - first_key - warp_key;
      }
      mask_keys(s, limit);
    }
    write_maxima(maxima + warp * Policy::kRows, s);
    __syncthreads();
    GroupWeights<kRowTiles> group;
    update<Policy::kWarps>(state, group, maxima);
    write_probabilities(operands + warp * 32 * kRowTiles, s, state, group);

    const GroupTile v_tile = ring.take();  // also a barrier between the probabilities' two sides
    if (first_block < Policy::kBlocks) {
      add_sums(state, group, operands);
      accumulate<kHeadDim>(out, group, operands, v_tile, first_block);
    }
  }
  if (first_block < Policy::kBlocks) {
    store_split<kHeadDim, Policy>(params, work, state, out, first_block);
  }
}

}  // namespace qattn::cuda::decode
