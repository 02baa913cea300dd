// Which rows and keys a block of the split kernel takes.
#pragma once

#include <cstdint>

#include "cuda/decode.hpp"
#include "cuda/tile/scheduler.cuh"

namespace qattn::cuda::decode {

/// At most kRows rows of a (batch, kv head) pair and the keys of a split.
struct SplitWork {
  tile::BlockWork rows;
  std::uint32_t pair;  // of the launch
  int first_row;       // of the pair
  std::uint32_t split;
  int first_key;
  int tiles;  // groups of keys that some row sees

  /// Position of a row's part of this split in DecodeParams::states.
  __device__ std::int64_t partial(const DecodeParams& params, int row) const {
    return (pair * params.attention.rows + first_row + row) * params.splits + split;
  }
};

/// Work of block `index`. Blocks that run at the same time take neighbouring heads of the same
/// keys, which lie side by side in memory where heads come before tokens.
template <int kRows>
__device__ __forceinline__ SplitWork split_work(const DecodeParams& params, std::uint32_t index) {
  const AttentionParams& attention = params.attention;
  const auto heads_kv = static_cast<std::uint32_t>(attention.heads_kv);
  const std::uint32_t row_block = index % attention.row_blocks;
  const std::uint32_t head_split = index / attention.row_blocks;
  const std::uint32_t batch_split = head_split / heads_kv;
  const std::uint32_t batch = batch_split / params.splits;

  SplitWork work;
  work.rows.batch = attention.first_batch + batch;
  work.rows.head_kv = head_split % heads_kv;
  work.rows.group_size = static_cast<std::uint32_t>(attention.group_size);
  work.pair = batch * heads_kv + work.rows.head_kv;
  work.split = batch_split % params.splits;
  work.first_row = static_cast<int>(row_block) * kRows;
  work.rows.rows = min(static_cast<int>(attention.rows) - work.first_row, kRows);
  work.rows.first_query = work.first_row / attention.group_size;
  work.rows.first_head_in_group = static_cast<std::uint32_t>(work.first_row % attention.group_size);

  work.first_key = static_cast<int>(work.split) * params.split_keys;
  const int last_query = work.rows.place(work.rows.rows - 1).query;
  const int keys =
      min(tile::visible_keys(attention, last_query) - work.first_key, params.split_keys);
  work.tiles = keys <= 0 ? 0 : (keys - 1) / kGroupKeys + 1;
  return work;
}

}  // namespace qattn::cuda::decode
