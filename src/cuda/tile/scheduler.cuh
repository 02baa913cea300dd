// Which rows a block computes.
#pragma once

#include <cstdint>

#include "cuda/attention.hpp"

namespace qattn::cuda::tile {

/// A row of a (batch, kv head) pair.
struct RowPlace {
  int query;
  int head_in_group;
};

/// The kRows rows of a block.
struct BlockWork {
  std::uint32_t batch;
  std::uint32_t head_kv;
  int rows;  // 1 to kRows
  int first_query;
  std::uint32_t first_head_in_group;
  std::uint32_t group_size;

  /// Rows past the last one stand in for it, so that what is derived from them is harmless.
  __device__ RowPlace place(int row) const {
    const std::uint32_t n = first_head_in_group + static_cast<std::uint32_t>(min(row, rows - 1));
    if (group_size == 1) return {first_query + static_cast<int>(n), 0};
    return {first_query + static_cast<int>(n / group_size), static_cast<int>(n % group_size)};
  }
};

/// Work of block `index`. Blocks with the most keys come first (later rows see more keys under a
/// causal mask), and the pairs of a section run together so that their K and V stay in L2. Where
/// rows do not fill all blocks the first rows, which see the fewest keys, have the block of fewer
/// parts of 64: with 1024 rows in blocks of 192 the last 64 would leave two of three warpgroups
/// without work for 1024 keys.
template <int kRows>
__device__ __forceinline__ BlockWork block_work(const AttentionParams& params,
                                                std::uint32_t index) {
  const std::uint32_t section_blocks = params.section_pairs * params.row_blocks;
  const std::uint32_t first_pair = index / section_blocks * params.section_pairs;
  const std::uint32_t pairs = min(params.section_pairs, params.pairs - first_pair);
  const std::uint32_t in_section = index % section_blocks;
  const std::uint32_t pair = first_pair + in_section % pairs;
  const std::uint32_t row_block = params.row_blocks - 1 - in_section / pairs;

  static_assert(kRows % 64 == 0);
  const std::int64_t first_block_rows =
      (params.rows - std::int64_t{params.row_blocks - 1} * kRows + 63) / 64 * 64;
  const std::int64_t first_row =
      row_block == 0 ? 0 : first_block_rows + std::int64_t{row_block - 1} * kRows;
  const std::uint32_t heads_kv = static_cast<std::uint32_t>(params.heads_kv);
  BlockWork work;
  work.batch = params.first_batch + pair / heads_kv;
  work.head_kv = pair % heads_kv;
  const std::int64_t block_rows = row_block == 0 ? first_block_rows : std::int64_t{kRows};
  work.rows = static_cast<int>(min(params.rows - first_row, block_rows));
  work.group_size = static_cast<std::uint32_t>(params.group_size);
  work.first_query = static_cast<int>(first_row);
  work.first_head_in_group = 0;
  if (work.group_size > 1) {
    work.first_query = static_cast<int>(first_row / work.group_size);
    work.first_head_in_group = static_cast<std::uint32_t>(first_row % work.group_size);
  }
  return work;
}

/// Keys that a query sees are [0, visible_keys).
__device__ __forceinline__ int visible_keys(const AttentionParams& params, int query) {
  if (!params.causal) return params.seq_k;
  const std::int64_t end = static_cast<std::int64_t>(query) + params.seq_k - params.seq_q + 1;
  return static_cast<int>(end < 0 ? 0 : end < params.seq_k ? end : params.seq_k);
}

}  // namespace qattn::cuda::tile
