// What a task keeps in its scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/scratch.hpp"
#include "cpu/tile/elements.hpp"

namespace qattn::cpu {
namespace {

// Online softmax of the rows of a task over a stretch of keys.
struct SoftmaxState {
  float* maximum;  // [row] kInteger + largest score; kHidden before the first visible key
  float* sum;      // [row] sum of probabilities, in units of 1/65280 of the maximum's
  float* output;   // [block][d][row in block] sum of probability * value, in the same unit

  // The part of the block that starts at `row`.
  SoftmaxState block(std::int64_t row, std::int64_t head_dim) const {
    return {maximum + row, sum + row, output + row * padded_columns(head_dim)};
  }
};

// A group of keys and values, packed.
struct PackedGroup {
  std::int32_t* keys;
  std::int32_t* key_starts;
  std::int32_t* values;
  std::int32_t* value_starts;
  int started_keys;  // that value_starts covers
};

template <class Operands>
struct TaskMemory {
  // Constants of the rows, padding rows included (they repeat the last row).
  float* factor;                     // [row] log2(e) * |score factor|
  float* negated;                    // [row] 1 where the score factor is negative, else 0
  float* finite;                     // [row] 1 where the score factor is finite, else 0
  std::int32_t* visible;             // [row] keys
  std::int32_t* query;               // [row] of the tensor; not of padding rows
  std::int32_t* head;                // [row] query head of the tensor; not of padding rows
  std::int32_t* queries;             // packed, of one row block
  SoftmaxState total;                // of all row blocks, or of two where there is one chunk
  SoftmaxState chunk;                // of one row block; only where TaskShape::has_chunk_state()
  float* first_value;                // [d] what key 0 adds to an output
  PackedGroup groups[kChunkGroups];  // as many as the keys fill
  // One row block and group.
  float* scores;                // [key][row]
  std::int32_t* probabilities;  // packed
  float* group_maximum;         // [row]
  float* group_keys;            // [row] visible keys of the group
  std::int32_t* group_sum;      // [row] sum of the probabilities
  std::byte* end;

  TaskMemory(std::byte* scratch, const TaskShape& shape) : end(scratch) {
    constexpr std::int64_t kRows = Operands::kBlockRows;
    const std::int64_t head_dim = shape.head_dim;
    const std::int64_t padded_rows = round_up(shape.rows, kRows);
    const std::int64_t padded_dim = padded_columns(head_dim);
    take(factor, padded_rows);
    take(negated, padded_rows);
    take(finite, padded_rows);
    take(visible, padded_rows);
    take(query, padded_rows);
    take(head, padded_rows);
    take(queries, Operands::query_elements(head_dim));
    take_state(total, shape.has_chunk_state() ? padded_rows : 2 * kRows, padded_dim);
    if (shape.has_chunk_state()) take_state(chunk, kRows, padded_dim);
    take(first_value, padded_dim);
    for (std::int64_t i = 0; i < shape.groups(); ++i) {
      PackedGroup& group = groups[i];
      take(group.keys, Operands::key_elements(head_dim));
      take(group.values, Operands::value_elements(head_dim));
      take(group.key_starts, kGroupKeys);
      take(group.value_starts, padded_dim);
    }
    take(scores, kGroupKeys * kRows);
    take(probabilities, Operands::probability_elements());
    take(group_maximum, kRows);
    take(group_keys, kRows);
    take(group_sum, kRows);
  }

 private:
  void take_state(SoftmaxState& state, std::int64_t rows, std::int64_t columns) {
    take(state.maximum, rows);
    take(state.sum, rows);
    take(state.output, rows * columns);
  }

  template <class T>
  void take(T*& array, std::int64_t count) {
    static_assert(sizeof(T) == 4, "scratch_bytes() counts elements of four bytes");
    array = reinterpret_cast<T*>(end);
    end += round_up(count * 4, std::int64_t{kScratchAlignment});
  }
};

}  // namespace
}  // namespace qattn::cpu
