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
/// Heads of a task that computes a chunk of keys, at most.
inline constexpr std::int64_t kMaxChunkHeads = 32;
/// Groups of a chunk: packed at once, before the row blocks take them one after another.
inline constexpr std::int64_t kChunkGroups = kChunkKeys / kGroupKeys;

constexpr std::int64_t padded_columns(std::int64_t head_dim) noexcept {
  return (head_dim + kColumnPadding - 1) / kColumnPadding * kColumnPadding;
}

/// What the scratch memory of a task depends on.
struct TaskShape {
  std::int64_t head_dim;
  std::int64_t rows;  // at most, of any task
  std::int64_t keys;

  constexpr std::int64_t groups() const noexcept {
    return std::clamp((keys + kGroupKeys - 1) / kGroupKeys, std::int64_t{1}, kChunkGroups);
  }
  /// Chunks beyond the first have a state of their own.
  constexpr bool has_chunk_state() const noexcept { return keys > kChunkKeys; }
};

/// Bytes, a multiple of kScratchAlignment. At head_dim 128: 1.2 MB for up to 2048 keys, 2.2 MB for
/// any larger number of keys and the most rows (2048).
constexpr std::size_t scratch_bytes(const TaskShape& shape) noexcept {
  const std::int64_t columns = padded_columns(shape.head_dim);
  const std::int64_t rows = (shape.rows + kMaxBlockRows - 1) / kMaxBlockRows * kMaxBlockRows;
  constexpr std::int64_t kWord = 2;   // bytes of the widest packed operand
  constexpr std::int64_t kDword = 4;  // bytes of scores, sums and float32 state
  // Tiles take 64 bytes of a query or key at once.
  const std::int64_t tile_columns = (shape.head_dim + 63) / 64 * 64;
  const std::int64_t packed_columns = std::max(columns * kWord, tile_columns);
  const std::int64_t q = kMaxBlockRows * packed_columns;
  const std::int64_t k_and_v = shape.groups() * kGroupKeys * 2 * packed_columns;
  const std::int64_t corrections = (shape.groups() * (kGroupKeys + columns) + columns) * kDword;
  const std::int64_t scores = kGroupKeys * kMaxBlockRows * kDword;
  const std::int64_t probabilities = kGroupKeys * kMaxBlockRows * kWord;
  const std::int64_t row_values = (6 * rows + 3 * kMaxBlockRows) * kDword;
  const std::int64_t state_rows =
      shape.has_chunk_state() ? rows + kMaxBlockRows : 2 * kMaxBlockRows;
  const std::int64_t states = state_rows * (columns + 2) * kDword;
  return static_cast<std::size_t>(q + k_and_v + corrections + scores + probabilities + row_values +
                                  states);
}

}  // namespace qattn::cpu
