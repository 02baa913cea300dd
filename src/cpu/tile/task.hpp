// The tile loop of the CPU kernels: one task, from packed operands to stored rows.
//
//   for chunk of keys:                      fixed split, so that prefill and decode agree
//     for group of keys in chunk:           packed once for all rows of the task
//       for row block that sees the group:
//         scores; mask; start the state, in the first; update; quantize; accumulate
//     merge chunk into total
//   store
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/tile/row_block.hpp"
#include "cpu/tile/store.hpp"
#include "cpu/tile/task_memory.hpp"
#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

// `Block` computes row blocks; `Tail` a last block of few rows, such as the whole of a decoding
// step. Both pack keys and values alike.
template <class Block, class Tail>
class Task {
 public:
  explicit Task(const Work& work)
      : work_(work),
        problem_(*work.problem),
        head_dim_(problem_.head_dim),
        rows_(work.row_end - work.row_begin),
        blocks_((rows_ + kRows - 1) / kRows),
        memory_(work.scratch, head_dim_, rows_) {}

  void run() {
    set_row_constants();
    for (std::int64_t block = 0; block < blocks_; ++block) {
      with_operands(block, [&]<class Operands>(Operands) { pack_queries<Operands>(block); });
    }
    reset(memory_.total);
    const std::int64_t keys = memory_.visible[rows_ - 1];  // later rows never see fewer
    for (std::int64_t chunk = 0; chunk < keys; chunk += kChunkKeys) {
      const SoftmaxState& state = chunk == 0 ? memory_.total : memory_.chunk;
      if (chunk != 0) reset(state);
      const std::int64_t chunk_end = chunk + kChunkKeys < keys ? chunk + kChunkKeys : keys;
      for (std::int64_t group = chunk; group < chunk_end; group += kGroupKeys) {
        pack_group(group, keys);
        for (std::int64_t block = first_block(group); block < blocks_; ++block) {
          prefetch_group(group + kGroupKeys, block, keys);
          if (memory_.visible[block * kRows + kRows - 1] <= group + kGroupKeys) {
            prefetch_output(block);
          }
          with_operands(block,
                        [&]<class Operands>(Operands) { attend<Operands>(state, block, group); });
        }
      }
      if (chunk != 0) merge(chunk);
    }
    for (std::int64_t block = 0; block < blocks_; ++block) {
      with_operands(block, [&]<class Operands>(Operands) {
        store_rows<Operands>(work_, memory_, block * kRows);
      });
    }
  }

 private:
  static constexpr std::int64_t kRows = Block::kBlockRows;
  static constexpr std::int64_t kLine = 64;  // bytes of a cache line

  template <class F>
  void with_operands(std::int64_t block, F f) {
    if (rows_ - block * kRows <= Tail::kBlockRows) {
      f(Tail{});
    } else {
      f(Block{});
    }
  }

  void set_row_constants() {
    const std::int64_t group_size = problem_.group_size();
    std::int64_t query = work_.row_begin / group_size;
    std::int64_t head_of_group = work_.row_begin % group_size;
    for (std::int64_t row = 0; row < rows_; ++row) {
      memory_.query[row] = static_cast<std::int32_t>(query);
      memory_.head[row] = static_cast<std::int32_t>(work_.head_kv * group_size + head_of_group);
      memory_.visible[row] = static_cast<std::int32_t>(problem_.visible_keys(query));
      if (row < group_size) {
        set_factor(row);
      } else {
        copy_factor(row, row - group_size);  // the heads repeat
      }
      if (++head_of_group == group_size) {
        head_of_group = 0;
        ++query;
      }
    }
    for (std::int64_t row = rows_; row < blocks_ * kRows; ++row) {
      memory_.visible[row] = memory_.visible[rows_ - 1];
      copy_factor(row, rows_ - 1);
    }
  }

  void set_factor(std::int64_t row) {
    const ScoreFactor c = score_factor(problem_, memory_.head[row], work_.head_kv);
    memory_.factor[row] = c.exponent;
    memory_.negated[row] = c.negative ? 1.0F : 0.0F;
    memory_.finite[row] = c.finite ? 1.0F : 0.0F;
    any_negated_ = any_negated_ || c.negative;
  }

  void copy_factor(std::int64_t row, std::int64_t from) {
    memory_.factor[row] = memory_.factor[from];
    memory_.negated[row] = memory_.negated[from];
    memory_.finite[row] = memory_.finite[from];
  }

  template <class Operands>
  void pack_queries(std::int64_t block) {
    const std::int8_t* rows[Operands::kBlockRows];
    for (std::int64_t i = 0; i < Operands::kBlockRows; ++i) {
      const std::int64_t row = block * kRows + i;
      rows[i] = row < rows_ ? problem_.q.row(work_.batch, memory_.query[row], memory_.head[row])
                            : kZeroRow;
    }
    Operands::pack_queries(memory_.queries + block * Block::query_elements(head_dim_), rows,
                           head_dim_);
  }

  void pack_group(std::int64_t group, std::int64_t keys_end) {
    const std::int8_t* rows[kGroupKeys];
    const int keys =
        static_cast<int>(keys_end - group < kGroupKeys ? keys_end - group : kGroupKeys);
    const auto set_rows = [&](const core::InputRef& tensor) {
      const std::int8_t* row = tensor.row(work_.batch, group, work_.head_kv);
      for (int i = 0; i < keys; ++i) rows[i] = row + i * tensor.strides.seq;
      for (int i = keys; i < kGroupKeys; ++i) rows[i] = kZeroRow;
    };
    set_rows(problem_.k);
    Block::pack_keys(memory_.keys, memory_.key_starts, rows, keys, head_dim_);
    set_rows(problem_.v);
    Block::pack_values(memory_.values, rows, keys, head_dim_);
    started_keys_ = 0;
  }

  // A block's share of the rows of K and V that the next pack_group() reads: rows of one head lie
  // further apart than what the processor prefetches by itself. (Inlined by force: GCC takes a
  // function that only prefetches for one without effect.)
  [[gnu::always_inline]] void prefetch_group(std::int64_t group, std::int64_t block,
                                             std::int64_t keys_end) const {
    const std::int64_t end = group + kGroupKeys < keys_end ? group + kGroupKeys : keys_end;
    for (std::int64_t key = group + block; key < end; key += blocks_) {
      const std::int8_t* k = problem_.k.row(work_.batch, key, work_.head_kv);
      const std::int8_t* v = problem_.v.row(work_.batch, key, work_.head_kv);
      for (std::int64_t d = 0; d < head_dim_; d += kLine) {
        __builtin_prefetch(k + d, 0, 2);
        __builtin_prefetch(v + d, 0, 2);
      }
    }
  }

  // The rows that the block will store, before its last group is computed.
  [[gnu::always_inline]] void prefetch_output(std::int64_t block) const {
    const std::int64_t end = (block + 1) * kRows < rows_ ? (block + 1) * kRows : rows_;
    for (std::int64_t row = block * kRows; row < end; ++row) {
      const float* to = problem_.out.row(work_.batch, memory_.query[row], memory_.head[row]);
      for (std::int64_t d = 0; d < head_dim_; d += kLine / 4) __builtin_prefetch(to + d, 1, 2);
    }
  }

  void reset(const SoftmaxState& state) {
    for (std::int64_t row = 0; row < blocks_ * kRows; ++row) {
      state.maximum[row] = kHidden;
      state.sum[row] = 0;
    }
    std::memset(state.output, 0, static_cast<std::size_t>(blocks_ * output_elements()) * 4);
  }

  std::int64_t output_elements() const { return padded_columns(head_dim_) * kRows; }

  // First row block with a row that sees `key`.
  std::int64_t first_block(std::int64_t key) const {
    std::int64_t block = 0;
    while (memory_.visible[block * kRows + kRows - 1] <= key) ++block;
    return block;
  }

  template <class Operands>
  void attend(const SoftmaxState& state, std::int64_t block, std::int64_t group) {
    const std::int64_t row = block * kRows;
    const int least = count_keys(row, group);
    const int keys = static_cast<int>(
        round_up(static_cast<int>(memory_.group_keys[kRows - 1]), Operands::kKeyQuantum));
    float* scores = memory_.scores;
    Operands::scores(scores, block_rows(block).queries, memory_.keys, memory_.key_starts, keys,
                     head_dim_);
    if (any_negated_) negate<Operands>(scores, memory_.negated + row, keys);
    if (least < keys) mask<Operands>(scores, memory_.group_keys, least, keys);
    if (group == 0) {
      start_state<Operands>(state.block(row, head_dim_), scores, memory_.group_keys,
                            problem_.v.row(work_.batch, 0, work_.head_kv), head_dim_);
    }
    const bool masked = least < keys || group == 0;
    row_maxima<Operands>(memory_.group_maximum, scores, keys);
    const auto rescale =
        update<Operands>(state.maximum + row, memory_.group_maximum, memory_.factor + row);
    if (masked) {
      quantize_and_accumulate<Operands, true>(state, block, keys, rescale);
    } else {
      quantize_and_accumulate<Operands, false>(state, block, keys, rescale);
    }
  }

  // Sets the visible keys of every row in the group and returns the least.
  int count_keys(std::int64_t row, std::int64_t group) {
    constexpr auto kAll = static_cast<std::int32_t>(kGroupKeys);
    const auto first = static_cast<std::int32_t>(group);
    for (std::int64_t i = 0; i < kRows; ++i) {
      std::int32_t keys = memory_.visible[row + i] - first;
      keys = keys < 0 ? 0 : keys;
      memory_.group_keys[i] = static_cast<float>(keys < kAll ? keys : kAll);
    }
    return static_cast<int>(memory_.group_keys[0]);
  }

  BlockRows block_rows(std::int64_t block) const {
    const std::int64_t row = block * kRows;
    return {memory_.factor + row, memory_.negated + row,
            memory_.queries + block * Block::query_elements(head_dim_)};
  }

  template <class Operands, bool kMasked>
  void quantize_and_accumulate(const SoftmaxState& state, std::int64_t block, int keys,
                               const Rescale<Operands>& rescale) {
    if (problem_.precision == Precision::high) {
      quantize<Operands, Codes::words, kMasked>(block, keys);
      return accumulate<Operands, Codes::words>(state, block, keys, rescale);
    }
    quantize<Operands, Codes::bytes, kMasked>(block, keys);
    if (!any_needs_words<Operands>(memory_.group_sum, memory_.group_keys)) {
      return accumulate<Operands, Codes::bytes>(state, block, keys, rescale);
    }
    quantize<Operands, Codes::mixed, kMasked>(block, keys);
    accumulate<Operands, Codes::words>(state, block, keys, rescale);  // they are stored alike
  }

  template <class Operands, Codes kCodes, bool kMasked>
  void quantize(std::int64_t block, int keys) {
    cpu::quantize<Operands, kCodes, kMasked>(block_rows(block), memory_.group_maximum,
                                             memory_.group_keys, memory_.scores, keys,
                                             memory_.probabilities, memory_.group_sum);
  }

  template <class Operands, Codes kCodes>
  void accumulate(const SoftmaxState& state, std::int64_t block, int keys,
                  const Rescale<Operands>& rescale) {
    if (Operands::kStartsValues && kCodes != Codes::bytes && started_keys_ != keys) {
      Operands::start_values(memory_.value_starts, memory_.values, keys, head_dim_);
      started_keys_ = keys;
    }
    using Lanes = typename Operands::Lanes;
    typename Lanes::Floats arriving[Operands::kRowVectors];
    for_row_vectors<Operands>([&](int v, int row) {
      arriving[v] = Lanes::to_floats(Lanes::load(memory_.group_sum + row));
    });
    accumulate_sum<Operands>(state.sum + block * kRows, arriving, rescale);
    float* output = state.block(block * kRows, head_dim_).output;
    const auto add = rescale.unchanged ? accumulate_output<Operands, kCodes, true>
                                       : accumulate_output<Operands, kCodes, false>;
    add(output, memory_.probabilities, memory_.values, memory_.value_starts, keys, head_dim_,
        reinterpret_cast<std::int32_t*>(memory_.scores), rescale);
  }

  // Joins the state of a chunk to the total, for the row blocks that saw the chunk.
  void merge(std::int64_t chunk) {
    for (std::int64_t block = first_block(chunk); block < blocks_; ++block) {
      const std::int64_t row = block * kRows;
      with_operands(block, [&]<class Operands>(Operands) {
        merge_states<Operands>(memory_.total.block(row, head_dim_),
                               memory_.chunk.block(row, head_dim_), memory_.factor + row,
                               head_dim_);
      });
    }
  }

  const Work& work_;
  const core::Problem& problem_;
  const std::int64_t head_dim_;
  const std::int64_t rows_;
  const std::int64_t blocks_;
  TaskMemory<Block> memory_;
  bool any_negated_ = false;
  int started_keys_ = 0;  // keys that value_starts of the current group covers
};

}  // namespace
}  // namespace qattn::cpu
