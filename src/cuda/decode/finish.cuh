// Finished rows to global memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/tile/scheduler.cuh"
#include "cuda/tile/softmax.cuh"
#include "cuda/tile/store.cuh"

namespace qattn::cuda::decode {

/// Where a row lies in the tensors.
struct RowTarget {
  std::int64_t batch;
  std::uint32_t head_kv;
  tile::RowPlace place;

  __device__ std::int64_t head(const AttentionParams& params) const {
    return static_cast<std::int64_t>(head_kv) * params.group_size + place.head_in_group;
  }
  __device__ tile::ScoreFactor factor(const AttentionParams& params) const {
    return tile::score_factor(params.softmax_scale, params.q.scale[head(params)],
                              params.k.scale[head_kv]);
  }
  __device__ OutputPointer out(const AttentionParams& params) const {
    return params.out + (batch * params.out_batch_stride + place.query * params.out_seq_stride +
                         head(params) * params.out_head_stride);
  }
  __device__ tile::RowFinish finish(const AttentionParams& params, float sum) const {
    return {sum > 0.0F, factor(params).finite ? 1.0F / sum : NAN, params.v.scale[head_kv]};
  }
  /// One thread of the row's.
  __device__ void write_lse(const AttentionParams& params, float max, float sum) const {
    if (params.lse == nullptr) return;
    const std::int64_t heads_q = static_cast<std::int64_t>(params.heads_kv) * params.group_size;
    params.lse[(batch * heads_q + head(params)) * params.seq_q + place.query] =
        tile::log_sum(factor(params), max, sum);
  }
};

/// Neighbouring columns of a row.
template <int kCount>
using Columns = tile::Vector<float, kCount>;

/// Writes columns `first` and on of those that the row has.
template <int kCount>
__device__ __forceinline__ void store_columns(const AttentionParams& params,
                                              const OutputPointer& out, int first,
                                              const Columns<kCount>& sums,
                                              const tile::RowFinish& finish) {
  Columns<kCount> result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) result.value[i] = finish.value(sums.value[i]);
  tile::store_columns(out, params.out_aligned, params.head_dim, first, result);
}

}  // namespace qattn::cuda::decode
