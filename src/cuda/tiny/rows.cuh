// The 16 rows of a block of the tiny kernel.
#pragma once

#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/tile/scheduler.cuh"
#include "cuda/tile/scores.cuh"

namespace qattn::cuda::tiny {

/// The grid is (kv heads, row blocks, batch): nothing needs to be divided. Blocks with the most
/// keys come first.
__device__ __forceinline__ tile::BlockWork block_work(const AttentionParams& params) {
  const std::uint32_t first_row = (gridDim.y - 1 - blockIdx.y) * kTinyRows;
  tile::BlockWork work;
  work.batch = params.first_batch + blockIdx.z;
  work.head_kv = blockIdx.x;
  work.rows = min(static_cast<int>(params.rows) - static_cast<int>(first_row), kTinyRows);
  work.group_size = static_cast<std::uint32_t>(params.group_size);
  work.first_query = static_cast<int>(first_row);
  work.first_head_in_group = 0;
  if (work.group_size > 1) {
    work.first_query = static_cast<int>(first_row / work.group_size);
    work.first_head_in_group = first_row % work.group_size;
  }
  return work;
}

/// Keys that a query sees are [0, visible_keys): as tile::visible_keys(), in the 32 bits that so
/// few keys allow.
__device__ __forceinline__ int visible_keys(const AttentionParams& params, int query) {
  const int end = query - params.seq_q + params.seq_k + 1;
  return params.causal ? min(max(end, 0), params.seq_k) : params.seq_k;
}

/// What a thread knows about its two rows, lane / 4 and 8 + lane / 4 of the block.
struct Rows {
  int query[2];
  int head[2];   // query head
  int limit[2];  // keys that the row sees
};

__device__ __forceinline__ Rows rows_of_lane(const AttentionParams& params,
                                             const tile::BlockWork& work, int lane) {
  Rows rows;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const tile::RowPlace place = work.place(lane / 4 + 8 * row);
    rows.query[row] = place.query;
    rows.head[row] = static_cast<int>(work.head_kv) * params.group_size + place.head_in_group;
    rows.limit[row] = visible_keys(params, place.query);
  }
  return rows;
}

/// The scales that a thread needs, read while the tensors are on their way.
struct Scales {
  float q[2];
  float k;
  float v;
};

__device__ __forceinline__ Scales load_scales(const AttentionParams& params, const Rows& rows,
                                              std::uint32_t head_kv) {
  return {{params.q.scale[rows.head[0]], params.q.scale[rows.head[1]]},
          params.k.scale[head_kv],
          params.v.scale[head_kv]};
}

/// Whether the factor of a row's scores is below 0, told from the bits of its parts: the products
/// do not have to wait for arithmetic in float64. Means nothing where a part is not finite.
__device__ __forceinline__ bool is_negative(const AttentionParams& params, float q_scale,
                                            float k_scale) {
  const int signs =
      __double2hiint(params.softmax_scale) ^ __float_as_int(q_scale) ^ __float_as_int(k_scale);
  return signs < 0 && params.softmax_scale != 0.0 && q_scale != 0.0F && k_scale != 0.0F;
}

/// Distance of token `index` in a tensor, in its unit. Strides of the tokens of tiny problems fit
/// 32 bits (attention_launch.cpp): one instruction adds it to an address.
__device__ __forceinline__ std::uint64_t distance(std::uint32_t index, std::int64_t stride) {
  return static_cast<std::uint64_t>(index) * static_cast<std::uint32_t>(stride);
}

}  // namespace qattn::cuda::tiny
