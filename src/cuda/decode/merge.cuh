// The merge kernel joins what the splits know of a row.
//
// The largest score of all splits is exact and independent of their order. The weighted sums are
// taken in ascending order of the splits where they are few; else by four warps, each of every
// fourth split, whose sums are added in order.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/decode.hpp"
#include "cuda/decode/finish.cuh"
#include "cuda/decode/softmax.cuh"
#include "cuda/ptx/ex2.cuh"
#include "cuda/ptx/griddepcontrol.cuh"

namespace qattn::cuda::decode {

inline constexpr int kMergeThreads = 128;
/// Rows or, with many splits, warps of a row that a block has.
inline constexpr int kMergeRows = kMergeThreads / 32;

/// The splits of a row that a warp takes: `first`, `first` + `step` and so on.
struct Strand {
  std::uint32_t first;
  std::uint32_t step;
  std::uint32_t splits;

  /// Split number `n` of the strand.
  __device__ std::uint32_t split(std::uint32_t n) const { return first + n * step; }
  __device__ std::uint32_t count() const {
    return first < splits ? (splits - first - 1) / step + 1 : 0;
  }
  /// State of split number `n` + lane; none past the last.
  __device__ SplitState load_state(const SplitState* states, std::uint32_t n) const {
    const std::uint32_t split_of_lane = split(n + threadIdx.x % 32);
    if (split_of_lane >= splits) return {-INFINITY, 0.0F};
    const float2 state = __ldcg(reinterpret_cast<const float2*>(states + split_of_lane));
    return {state.x, state.y};
  }
};

/// Largest score of a row over all of its splits.
__device__ __forceinline__ float merged_max(const SplitState* states, std::uint32_t splits) {
  const Strand all = {0, 1, splits};
  float max = -INFINITY;
  for (std::uint32_t n = 0; n < splits; n += 32) max = fmaxf(max, all.load_state(states, n).max);
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFFU, max, lanes));
  }
  return max;
}

/// Columns of a row that a lane holds: kVectors times kWidth neighbouring ones.
template <int kHeadDim>
struct MergedRow {
  static constexpr int kWidth = kHeadDim % 128 == 0 ? 4 : kHeadDim % 64 == 0 ? 2 : 1;
  static constexpr int kVectors = kHeadDim / (32 * kWidth);
  Columns<kWidth> vector[kVectors];

  __device__ static int first_column(int vector) {
    return (32 * vector + static_cast<int>(threadIdx.x % 32)) * kWidth;
  }
  /// Read once, from where another launch has just written it: past L1.
  __device__ void load(const float* from) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const float* columns = from + first_column(v);
      if constexpr (kWidth == 4) {
        const float4 x = __ldcg(reinterpret_cast<const float4*>(columns));
        vector[v] = {x.x, x.y, x.z, x.w};
      } else if constexpr (kWidth == 2) {
        const float2 x = __ldcg(reinterpret_cast<const float2*>(columns));
        vector[v] = {x.x, x.y};
      } else {
        vector[v] = {__ldcg(columns)};
      }
    }
  }
  __device__ void add(const MergedRow& other, float weight) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        vector[v].value[i] = fmaf(other.vector[v].value[i], weight, vector[v].value[i]);
      }
    }
  }
};

/// Sums of a strand relative to `max`.
template <int kHeadDim>
struct StrandSums {
  float sum = 0.0F;
  MergedRow<kHeadDim> row = {};

  __device__ void add(const Strand& strand, const SplitState* states, const float* outputs,
                      float exponent, float max) {
    const std::uint32_t count = strand.count();
    SplitState state = {};
    float weight = 0.0F;
    for (std::uint32_t n = 0; n < count; n += kMergeSplitsOfWarp) {
      // The latency of L2 counts, not its rate: all loads are on their way before the first sum.
      MergedRow<kHeadDim> part[kMergeSplitsOfWarp];
#pragma unroll
      for (std::uint32_t i = 0; i < kMergeSplitsOfWarp; ++i) {
        if (n + i < count) {
          part[i].load(outputs + static_cast<std::int64_t>(strand.split(n + i)) * kHeadDim);
        } else {
          part[i] = {};
        }
      }
      if (n % 32 == 0) {
        state = strand.load_state(states, n);
        weight = ptx::ex2(exponent * (state.max - max));
      }
#pragma unroll
      for (std::uint32_t i = 0; i < kMergeSplitsOfWarp; ++i) {
        const int lane = static_cast<int>(n % 32 + i);
        const float weight_of_split = __shfl_sync(0xFFFFFFFFU, weight, lane);
        sum = fmaf(__shfl_sync(0xFFFFFFFFU, state.sum, lane), weight_of_split, sum);
        row.add(part[i], weight_of_split);
      }
    }
  }

  /// Adds the sums of the block's other warps to those of warp 0.
  __device__ void add_warps() {
    using Row = MergedRow<kHeadDim>;
    __shared__ Row rows[kMergeRows - 1][32];
    __shared__ float sums[kMergeRows - 1];
    const unsigned warp = threadIdx.x / 32;
    const unsigned lane = threadIdx.x % 32;
    if (warp > 0) {
      rows[warp - 1][lane] = row;
      sums[warp - 1] = sum;
    }
    __syncthreads();
    if (warp > 0) return;
#pragma unroll
    for (int other = 0; other < kMergeRows - 1; ++other) {
      sum += sums[other];
      row.add(rows[other][lane], 1.0F);
    }
  }
};

/// The merge kernel.
template <int kHeadDim>
__device__ __forceinline__ void run_merge(const DecodeParams& params) {
  const AttentionParams& attention = params.attention;
  const std::uint32_t warp = threadIdx.x / 32;
  const bool shared_row = params.splits > kMergeSplitsOfWarp;
  const std::int64_t index = shared_row ? static_cast<std::int64_t>(blockIdx.x)
                                        : static_cast<std::int64_t>(blockIdx.x) * kMergeRows + warp;
  if (index >= attention.pairs * attention.rows) return;
  const auto pair = static_cast<std::uint32_t>(index / attention.rows);
  const auto row = static_cast<int>(index % attention.rows);
  const auto heads_kv = static_cast<std::uint32_t>(attention.heads_kv);
  const RowTarget target = {attention.first_batch + pair / heads_kv,
                            pair % heads_kv,
                            {row / attention.group_size, row % attention.group_size}};
  const float exponent = tile::exponent_of(target.factor(attention));
  const SplitState* states = params.states + index * params.splits;
  const float* outputs = params.outputs + index * params.splits * kHeadDim;
  const Strand strand = {shared_row ? warp : 0, shared_row ? kMergeRows : 1U, params.splits};

  ptx::griddepcontrol_wait();
  const float max = merged_max(states, params.splits);
  StrandSums<kHeadDim> sums;
  sums.add(strand, states, outputs, exponent, finite_or_zero(max));
  if (shared_row) {
    sums.add_warps();
    if (warp > 0) return;
  }
  const tile::RowFinish finish = target.finish(attention, sums.sum);
  const OutputPointer out = target.out(attention);
#pragma unroll
  for (int v = 0; v < MergedRow<kHeadDim>::kVectors; ++v) {
    store_columns(attention, out, MergedRow<kHeadDim>::first_column(v), sums.row.vector[v], finish);
  }
  if (threadIdx.x % 32 == 0) target.write_lse(attention, max, sums.sum);
}

}  // namespace qattn::cuda::decode
