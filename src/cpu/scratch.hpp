// Size of the scratch memory of a task: an upper bound for every tier, from head_dim alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/work.hpp"

namespace qattn::cpu {

inline constexpr std::size_t kScratchAlignment = 64;
/// Rows of a block that a tier computes at once, at most.
inline constexpr std::int64_t kMaxBlockRows = 32;
/// Columns of the packed tensors are a multiple of this many.
inline constexpr std::int64_t kColumnPadding = 16;

constexpr std::int64_t padded_columns(std::int64_t head_dim) noexcept {
  return (head_dim + kColumnPadding - 1) / kColumnPadding * kColumnPadding;
}

/// Bytes, a multiple of kScratchAlignment; 0.8 MB at head_dim 128 and at 256. Of those a task of
/// few keys never touches the chunk state, so a task and its share of K and V stay in a 2 MB L2.
constexpr std::size_t scratch_bytes(std::int64_t head_dim) noexcept {
  const std::int64_t columns = padded_columns(head_dim);
  const std::int64_t rows = max_task_rows(head_dim);
  constexpr std::int64_t kWord = 2;   // bytes of the widest packed operand
  constexpr std::int64_t kDword = 4;  // bytes of scores, sums and float32 state
  // Tiles take 64 bytes of a query or key at once.
  const std::int64_t tile_columns = (head_dim + 63) / 64 * 64;
  const std::int64_t packed_columns = std::max(columns * kWord, tile_columns);
  const std::int64_t q = rows * packed_columns;
  const std::int64_t k_and_v = 2 * kGroupKeys * packed_columns;
  const std::int64_t corrections = (kGroupKeys + 4 * columns) * kDword;
  const std::int64_t scores = kGroupKeys * kMaxBlockRows * kDword;
  const std::int64_t probabilities = kGroupKeys * kMaxBlockRows * kWord;
  const std::int64_t row_values = (10 * rows + 3 * kMaxBlockRows) * kDword;
  const std::int64_t states = 2 * rows * columns * kDword;
  return static_cast<std::size_t>(q + k_and_v + corrections + scores + probabilities + row_values +
                                  states);
}

}  // namespace qattn::cpu
