// The tile loop of the CPU kernels: one task, from packed operands to stored rows.
//
//   for chunk of keys:                      fixed split, so that prefill and decode agree
//     for row block that sees the chunk:    its state stays in the L1 cache
//       for group of keys in chunk that the block sees:
//         pack the group, if no block did     once for all rows of the task
//         scores; mask; start the state, in the first; update; quantize; accumulate
//         store a part of the block before
//       merge chunk into total
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
        shape_{head_dim_, rows_, problem_.seq_k},
        memory_(work.scratch, shape_),
        store_(work, memory_) {}

  void run() {
    set_row_constants();
    std::int64_t block = 0;
    for (; block < blocks_ && visible_keys(block) == 0; ++block) store_empty(block);
    const std::int64_t keys = memory_.visible[rows_ - 1];  // later rows never see fewer
    for (std::int64_t chunk = 0; chunk < keys; chunk += kChunkKeys) {
      const std::int64_t chunk_end = chunk + kChunkKeys < keys ? chunk + kChunkKeys : keys;
      packed_end_ = chunk;
      while (visible_keys(block) <= chunk) ++block;
      for (std::int64_t i = block; i < blocks_; ++i) {
        with_operands(i, [&]<class Operands>(Operands) {
          attend_chunk<Operands>(i, chunk, chunk_end, keys);
        });
      }
    }
    store_.finish();
  }

  // Step::chunk for one kv head: the states of all rows go to the partials.
  void run_chunk() {
    set_row_constants();
    const std::int64_t chunk = work_.chunk * kChunkKeys;
    const std::int64_t keys = memory_.visible[rows_ - 1];
    const std::int64_t chunk_end = chunk + kChunkKeys < keys ? chunk + kChunkKeys : keys;
    packed_end_ = chunk;
    for (std::int64_t block = 0; block < blocks_; ++block) {
      const SoftmaxState state = total(block);
      if (visible_keys(block) <= chunk) reset(state);
      with_operands(block, [&]<class Operands>(Operands) {
        if (visible_keys(block) > chunk) {
          attend_groups<Operands>(state, block, chunk, chunk_end, chunk_end);
        }
        hand_over(state, block, Operands::kBlockRows);
      });
    }
  }

 private:
  static constexpr std::int64_t kRows = Block::kBlockRows;
  static constexpr std::int64_t kLine = 64;  // bytes of a cache line
  // Rows of K and V that are prefetched beside a group that is not followed by packing another.
  static constexpr std::int64_t kPrefetchedRows = 16;

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
    Operands::pack_queries(memory_.queries, rows, head_dim_);
  }

  // What key 0 adds to the output of a row that sees it.
  void set_first_value() {
    const std::int8_t* value = problem_.v.row(work_.batch, 0, work_.head_kv);
    for (std::int64_t d = 0; d < padded_columns(head_dim_); ++d) {
      memory_.first_value[d] = d < head_dim_ ? kUnit * static_cast<float>(value[d]) : 0.0F;
    }
  }

  void pack_group(PackedGroup& to, std::int64_t group, std::int64_t keys_end) {
    const std::int8_t* rows[kGroupKeys];
    const int keys =
        static_cast<int>(keys_end - group < kGroupKeys ? keys_end - group : kGroupKeys);
    const auto set_rows = [&](const core::InputRef& tensor) {
      const std::int8_t* row = tensor.row(work_.batch, group, work_.head_kv);
      for (int i = 0; i < keys; ++i) rows[i] = row + i * tensor.strides.seq;
      for (int i = keys; i < kGroupKeys; ++i) rows[i] = kZeroRow;
    };
    set_rows(problem_.k);
    Block::pack_keys(to.keys, to.key_starts, rows, keys, head_dim_);
    set_rows(problem_.v);
    Block::pack_values(to.values, rows, keys, head_dim_);
    to.started_keys = 0;
    if (group == 0) set_first_value();
    packed_end_ = group + kGroupKeys;
    if (prefetched_end_ < packed_end_) prefetched_end_ = packed_end_;
  }

  // The next rows of K and V of the group that is packed next: rows of one head lie further apart
  // than what the processor prefetches by itself. (Inlined by force: GCC takes a function that only
  // prefetches for one without effect.)
  [[gnu::always_inline]] void prefetch_keys(std::int64_t rows, std::int64_t keys_end) {
    const std::int64_t group_end =
        packed_end_ + kGroupKeys < keys_end ? packed_end_ + kGroupKeys : keys_end;
    for (; rows > 0 && prefetched_end_ < group_end; --rows, ++prefetched_end_) {
      const std::int8_t* k = problem_.k.row(work_.batch, prefetched_end_, work_.head_kv);
      const std::int8_t* v = problem_.v.row(work_.batch, prefetched_end_, work_.head_kv);
      for (std::int64_t d = 0; d < head_dim_; d += kLine) {
        __builtin_prefetch(k + d, 0, 2);
        __builtin_prefetch(v + d, 0, 2);
      }
    }
  }

  [[gnu::always_inline]] void prefetch_queries(std::int64_t block) const {
    const std::int64_t end = (block + 1) * kRows < rows_ ? (block + 1) * kRows : rows_;
    for (std::int64_t row = block * kRows; row < end; ++row) {
      const std::int8_t* q = problem_.q.row(work_.batch, memory_.query[row], memory_.head[row]);
      for (std::int64_t d = 0; d < head_dim_; d += kLine) __builtin_prefetch(q + d, 0, 2);
    }
  }

  // The state that a block keeps from chunk to chunk, and is stored from. With one chunk there are
  // two, in turns: a block is stored while the next one is computed.
  SoftmaxState total(std::int64_t block) const {
    const std::int64_t slot = shape_.has_chunk_state() ? block : block % 2;
    return memory_.total.block(slot * kRows, head_dim_);
  }

  void reset(const SoftmaxState& state) const {
    for (std::int64_t row = 0; row < kRows; ++row) {
      state.maximum[row] = kHidden;
      state.sum[row] = 0;
    }
    std::memset(state.output, 0, static_cast<std::size_t>(padded_columns(head_dim_) * kRows) * 4);
  }

  // Keys that the last row of a block sees: no other sees more.
  std::int64_t visible_keys(std::int64_t block) const {
    return memory_.visible[block * kRows + kRows - 1];
  }

  // A block over a chunk, and its store if it sees no more.
  template <class Operands>
  void attend_chunk(std::int64_t block, std::int64_t chunk, std::int64_t chunk_end,
                    std::int64_t keys_end) {
    const SoftmaxState total_state = total(block);
    if (chunk == 0) {
      attend_groups<Operands>(total_state, block, chunk, chunk_end, keys_end);
    } else {
      attend_groups<Operands>(memory_.chunk, block, chunk, chunk_end, keys_end);
      merge_states<Operands>(total_state, memory_.chunk, memory_.factor + block * kRows, head_dim_);
    }
    if (visible_keys(block) <= chunk_end) {
      store_.finish();
      store_.begin(block * kRows, total_state, Operands::kBlockRows);
    }
  }

  // The state of a block over the groups of a chunk that it sees: at least one.
  template <class Operands>
  void attend_groups(const SoftmaxState& state, std::int64_t block, std::int64_t chunk,
                     std::int64_t chunk_end, std::int64_t keys_end) {
    const std::int64_t visible = visible_keys(block);
    const std::int64_t seen = visible < chunk_end ? visible : chunk_end;
    if (chunk != 0) reset(state);  // chunk 0 starts from key 0
    pack_queries<Operands>(block);
    PackedGroup* packed = memory_.groups;
    for (std::int64_t group = chunk; group < seen; group += kGroupKeys, ++packed) {
      if (group == packed_end_) pack_group(*packed, group, keys_end);
      const bool last = group + kGroupKeys >= seen;
      prefetch_keys(last ? kPrefetchedRows : kGroupKeys, keys_end);
      if (last) prefetch_queries(block + 1);
      attend<Operands>(state, block, *packed, group);
      store_.step();
    }
  }

  void hand_over(const SoftmaxState& state, std::int64_t block, std::int64_t block_rows) const {
    const std::int64_t pair = work_.batch * problem_.heads_kv + work_.head_kv;
    const std::int64_t first = block * kRows;
    for (std::int64_t i = 0; i < block_rows && first + i < rows_; ++i) {
      float* to = work_.partials.state(pair, work_.chunk, first + i);
      to[Partials::kMaximum] = state.maximum[i];
      to[Partials::kSum] = state.sum[i];
      to += Partials::kOutput;
      for (std::int64_t d = 0; d < padded_columns(head_dim_); ++d) {
        to[d] = d < head_dim_ ? state.output[d * block_rows + i] : 0.0F;
      }
    }
  }

  void store_empty(std::int64_t block) const {
    for (std::int64_t row = block * kRows; row < (block + 1) * kRows && row < rows_; ++row) {
      finish_row(work_, memory_, row, 0, 0);
    }
  }

  template <class Operands>
  void attend(const SoftmaxState& state, std::int64_t block, PackedGroup& packed,
              std::int64_t group) {
    const std::int64_t row = block * kRows;
    const int least = count_keys(row, group);
    const int keys = static_cast<int>(
        round_up(static_cast<int>(memory_.group_keys[kRows - 1]), Operands::kKeyQuantum));
    float* scores = memory_.scores;
    Operands::scores(scores, block_rows(block).queries, packed.keys, packed.key_starts, keys,
                     head_dim_);
    if (any_negated_) negate<Operands>(scores, memory_.negated + row, keys);
    if (least < keys) mask<Operands>(scores, memory_.group_keys, least, keys);
    if (group == 0) {
      start_state<Operands>(state, scores, memory_.first_value, padded_columns(head_dim_));
    }
    row_maxima<Operands>(memory_.group_maximum, scores, keys);
    const auto rescale =
        update<Operands>(state.maximum, memory_.group_maximum, memory_.factor + row);
    quantize_and_accumulate<Operands>(state, block, packed, keys, rescale);
  }

  // Sets the visible keys of every row in the group and returns the least, the first row's.
  int count_keys(std::int64_t row, std::int64_t group) {
    constexpr auto kAll = static_cast<std::int32_t>(kGroupKeys);
    const auto first = static_cast<std::int32_t>(group);
    if (memory_.visible[row] - first >= kAll) {
      using Lanes = typename Block::Lanes;
      for (std::int64_t i = 0; i < kRows; i += Lanes::kLanes) {
        Lanes::store(memory_.group_keys + i, Lanes::splat(static_cast<float>(kAll)));
      }
      return kAll;
    }
    for (std::int64_t i = 0; i < kRows; ++i) {
      std::int32_t keys = memory_.visible[row + i] - first;
      keys = keys < 0 ? 0 : keys;
      memory_.group_keys[i] = static_cast<float>(keys < kAll ? keys : kAll);
    }
    return static_cast<int>(memory_.group_keys[0]);
  }

  BlockRows block_rows(std::int64_t block) const {
    const std::int64_t row = block * kRows;
    return {memory_.factor + row, memory_.negated + row, memory_.queries};
  }

  template <class Operands>
  void quantize_and_accumulate(const SoftmaxState& state, std::int64_t block, PackedGroup& packed,
                               int keys, const Rescale<Operands>& rescale) {
    if (problem_.precision == Precision::high) {
      quantize<Operands, Codes::words>(block, keys);
      return accumulate<Operands, Codes::words>(state, packed, keys, rescale);
    }
    quantize<Operands, Codes::bytes>(block, keys);
    if (!any_needs_words<Operands>(memory_.group_sum)) {
      return accumulate<Operands, Codes::bytes>(state, packed, keys, rescale);
    }
    quantize<Operands, Codes::mixed>(block, keys);
    accumulate<Operands, Codes::words>(state, packed, keys,
                                       rescale);  // they are stored alike
  }

  template <class Operands, Codes kCodes>
  void quantize(std::int64_t block, int keys) {
    cpu::quantize<Operands, kCodes>(block_rows(block), memory_.group_maximum, memory_.scores, keys,
                                    memory_.probabilities, memory_.group_sum);
  }

  template <class Operands, Codes kCodes>
  void accumulate(const SoftmaxState& state, PackedGroup& packed, int keys,
                  const Rescale<Operands>& rescale) {
    if (Operands::kStartsValues && kCodes != Codes::bytes && packed.started_keys != keys) {
      Operands::start_values(packed.value_starts, packed.values, keys, head_dim_);
      packed.started_keys = keys;
    }
    using Lanes = typename Operands::Lanes;
    typename Lanes::Floats arriving[Operands::kRowVectors];
    for_row_vectors<Operands>([&](int v, int row) {
      arriving[v] = Lanes::to_floats(Lanes::load(memory_.group_sum + row));
    });
    accumulate_sum<Operands>(state.sum, arriving, rescale);
    const auto add = rescale.unchanged ? accumulate_output<Operands, kCodes, true>
                                       : accumulate_output<Operands, kCodes, false>;
    add(state.output, memory_.probabilities, packed.values, packed.value_starts, keys, head_dim_,
        reinterpret_cast<std::int32_t*>(memory_.scores), rescale);
  }

  const Work& work_;
  const core::Problem& problem_;
  const std::int64_t head_dim_;
  const std::int64_t rows_;
  const std::int64_t blocks_;
  const TaskShape shape_;
  TaskMemory<Block> memory_;
  BlockStore<typename Block::Lanes, TaskMemory<Block>> store_;
  bool any_negated_ = false;
  std::int64_t packed_end_ = 0;  // of the keys of the chunk that are packed
  std::int64_t prefetched_end_ = 0;
};

}  // namespace
}  // namespace qattn::cpu
