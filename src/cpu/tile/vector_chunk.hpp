// Step::chunk on vectors, for few rows of many heads: keys and values are used once, so they are
// read as they lie in the caller's memory instead of being packed into panels.
//
//   for group of keys in the chunk:
//     for 16 keys:
//       for head: scores
//     for head:
//       mask; start the states, in the first group; update; quantize
//     for 16 values:
//       for head: accumulate
//     for head: add the sums to the output
//
// Heads come inside keys, since tokens lie in memory with their heads side by side, and the
// processor prefetches 16 rows that are read in step. Lanes are keys in the softmax, rows in the
// update of states and columns in the output.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>

#include "cpu/decode_shape.hpp"
#include "cpu/scratch.hpp"
#include "cpu/tile/row_block.hpp"
#include "cpu/tile/store.hpp"
#include "cpu/tile/vector_products.hpp"
#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

// What the verbs of row_block.hpp want to know of a vector of rows, and of one of keys.
template <class LanesType>
struct VectorOperands {
  using Lanes = LanesType;
  using Ints = typename Lanes::Ints;
  struct Elements {
    static constexpr bool kPlainCodes = true;
    static constexpr std::int32_t kWordBias = 0;
  };
  static constexpr int kRowVectors = 1;
  static constexpr int kBlockRows = Lanes::kLanes;
};

template <class Lanes>
class VectorChunk {
 public:
  // Four rows of bytes take 16 registers of sums.
  static constexpr std::int64_t kMaxRows = 4;

  static bool fits(const core::Problem& problem) {
    return problem.head_dim % kVectorBytes == 0 && problem.rows() <= kMaxRows;
  }

  explicit VectorChunk(const Work& work)
      : work_(work), problem_(*work.problem), rows_(work.row_end) {
    std::byte* end = work.scratch;
    const auto take = [&]<class T>(T*& array, std::int64_t count) {
      array = reinterpret_cast<T*>(end);
      end += round_up(count * static_cast<std::int64_t>(sizeof(T)), kVectorBytes);
    };
    static_assert(always_fits_scratch());
    const std::int64_t all_rows = work.head_count * rows_;
    take(queries_, all_rows * problem_.head_dim);
    take(output_, all_rows * problem_.head_dim);
    take(sums_, all_rows * problem_.head_dim);
    take(scores_, all_rows * kGroupKeys);
    take(codes_, all_rows * 2 * kGroupKeys);
    take(states_, work.head_count);
    take(zeros_, problem_.head_dim);
  }

  void run() {
    std::memset(zeros_, 0, static_cast<std::size_t>(problem_.head_dim));
    const std::int64_t elements = work_.head_count * rows_ * problem_.head_dim;
    std::memset(output_, 0, static_cast<std::size_t>(elements) * sizeof(float));
    for (std::int64_t head = 0; head < work_.head_count; ++head) prepare(head);
    const std::int64_t begin = work_.chunk * kChunkKeys;
    const std::int64_t visible = problem_.visible_keys(problem_.seq_q - 1);
    const std::int64_t end = begin + kChunkKeys < visible ? begin + kChunkKeys : visible;
    for (std::int64_t group = begin; group < end; group += kGroupKeys) {
      attend(group, end - group < kGroupKeys ? end - group : kGroupKeys);
    }
    for (std::int64_t head = 0; head < work_.head_count; ++head) {
      for (std::int64_t row = 0; row < rows_; ++row) hand_over(head, row);
    }
  }

 private:
  using Operands = VectorOperands<Lanes>;
  using Floats = typename Lanes::Floats;
  using Ints = typename Lanes::Ints;
  static constexpr std::int64_t kLanes = Lanes::kLanes;

  // Of a head, with a lane for each row; lanes without a row have the values of State().
  struct State {
    alignas(64) float maximum[kLanes];
    alignas(64) float sum[kLanes];
    alignas(64) float factor[kLanes];
    alignas(64) float group_maximum[kLanes];
    alignas(64) std::int32_t group_sum[kLanes];
    alignas(64) float old_weight[kLanes];
    alignas(64) float new_weight[kLanes];
    // Of a run of rows, at its first one, as dot_tokens() has rows in lanes.
    alignas(64) std::int32_t offset[kMaxRows][kLanes];
    alignas(64) std::int32_t sign[kMaxRows][kLanes];  // -1 where the factor is negative, else 0
    bool is_words[kMaxRows] = {};

    State() {
      for (std::int64_t i = 0; i < kLanes; ++i) {
        sum[i] = factor[i] = 0;
        maximum[i] = group_maximum[i] = kHidden;
        group_sum[i] = 0;
      }
    }
  };

  // Whether the constructor stays within the scratch memory of the task, for every shape.
  static constexpr bool always_fits_scratch() {
    for (std::int64_t head_dim = kVectorBytes; head_dim <= 256; head_dim += kVectorBytes) {
      for (std::int64_t rows = 1; rows <= kMaxRows; ++rows) {
        for (std::int64_t heads = 1; heads <= kMaxChunkHeads; ++heads) {
          const std::int64_t row_bytes = (1 + 4 + 4) * head_dim + (4 + 2) * kGroupKeys;
          const std::int64_t states = heads * static_cast<std::int64_t>(sizeof(State));
          const std::int64_t bytes = heads * rows * row_bytes + states + head_dim;
          const std::size_t given = DecodeShape{head_dim, rows, heads}.scratch_bytes();
          if (static_cast<std::size_t>(bytes) > given) return false;
        }
      }
    }
    return true;
  }

  void prepare(std::int64_t head) {
    const std::int64_t group_size = problem_.group_size();
    const std::int64_t head_kv = work_.head_kv + head;
    State& state = *new (states_ + head) State();
    std::int32_t offset[kMaxRows];  // keys count 128 more, as u8
    std::int32_t sign[kMaxRows];
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t head_q = head_kv * group_size + row % group_size;
      const ScoreFactor c = score_factor(problem_, head_q, head_kv);
      state.factor[row] = c.exponent;
      const std::int8_t* from = problem_.q.row(work_.batch, row / group_size, head_q);
      std::memcpy(query(head, row), from, static_cast<std::size_t>(problem_.head_dim));
      sign[row] = c.negative ? -1 : 0;
      offset[row] = 0;
      for (std::int64_t d = 0; d < problem_.head_dim; ++d) offset[row] += 128 * from[d];
    }
    each_rows(head, false, [&]<int kRows>(std::int64_t row) {
      for (std::int64_t i = 0; i < kLanes; ++i) {
        state.offset[row][i] = offset[row + i / (kLanes / kRows)];
        state.sign[row][i] = sign[row + i / (kLanes / kRows)];
      }
    });
  }

  TokenRows tokens(const core::InputRef& tensor, std::int64_t head, std::int64_t group,
                   std::int64_t keys) const {
    return {tensor.row(work_.batch, group, work_.head_kv + head), tensor.strides.seq, keys, zeros_};
  }

  void attend(std::int64_t group, std::int64_t keys) {
    for (std::int64_t key = 0; key < keys; key += kLanes) {
      for (std::int64_t head = 0; head < work_.head_count; ++head) {
        compute_scores(head, tokens(problem_.k, head, group, keys), key);
      }
    }
    for (std::int64_t head = 0; head < work_.head_count; ++head) exponentiate(head, group, keys);
    const std::int64_t elements = work_.head_count * rows_ * problem_.head_dim;
    std::memset(sums_, 0, static_cast<std::size_t>(elements) * sizeof(std::int32_t));
    for (std::int64_t key = 0; key < keys; key += kLanes) {
      for (std::int64_t head = 0; head < work_.head_count; ++head) {
        accumulate(head, tokens(problem_.v, head, group, keys), key);
      }
    }
    for (std::int64_t head = 0; head < work_.head_count; ++head) {
      for (std::int64_t row = 0; row < rows_; ++row) drain(head, row);
    }
  }

  // Calls `visit<kRows>(row)` for runs of one, two or four rows, of one format where `formats`.
  template <class Visit>
  void each_rows(std::int64_t head, bool formats, Visit&& visit) const {
    const bool* is_words = states_[head].is_words;
    const auto alike = [&](std::int64_t row, std::int64_t count) {
      if (row + count > rows_) return false;
      for (std::int64_t i = 1; formats && i < count; ++i) {
        if (is_words[row + i] != is_words[row]) return false;
      }
      return true;
    };
    for (std::int64_t row = 0; row < rows_;) {
      if (alike(row, 4)) {
        visit.template operator()<4>(row);
        row += 4;
      } else if (alike(row, 2)) {
        visit.template operator()<2>(row);
        row += 2;
      } else {
        visit.template operator()<1>(row);
        row += 1;
      }
    }
  }

  void compute_scores(std::int64_t head, const TokenRows& k, std::int64_t key) {
    each_rows(head, false, [&]<int kRows>(std::int64_t row) {
      switch (problem_.head_dim / kVectorBytes) {
        case 1:
          return compute_scores<kRows, 1>(head, row, k, key);
        case 2:
          return compute_scores<kRows, 2>(head, row, k, key);
        case 3:
          return compute_scores<kRows, 3>(head, row, k, key);
        default:  // head_dim is at most 256
          return compute_scores<kRows, 4>(head, row, k, key);
      }
    });
  }

  // kInteger + score of 16 keys from `key` on, for kRows rows.
  template <int kRows, int kSteps>
  void compute_scores(std::int64_t head, std::int64_t row, const TokenRows& k, std::int64_t key) {
    constexpr std::int64_t kKeys = kLanes / kRows;
    const State& state = states_[head];
    const Ints offset = Lanes::load(state.offset[row]);
    const Ints sign = Lanes::load(state.sign[row]);
    for (std::int64_t i = 0; i < kLanes; i += kKeys) {
      Ints score = dot_tokens<Lanes, kRows, kSteps>(k, key + i, query(head, row));
      score = ((score - offset) ^ sign) - sign;
      alignas(64) std::int32_t out[kLanes];
      Lanes::store(out, score + Lanes::splat(kIntegerBits));
      for (std::int64_t r = 0; r < kRows; ++r) {
        std::memcpy(scores_of(head, row + r) + key + i, out + r * kKeys, kKeys * sizeof(float));
      }
    }
  }

  void exponentiate(std::int64_t head, std::int64_t group, std::int64_t keys) {
    State& state = states_[head];
    for (std::int64_t row = 0; row < rows_; ++row) {
      mask(head, row, group, keys);
      if (group == 0) start(head, row);
      state.group_maximum[row] = largest(scores_of(head, row), keys);
    }
    const auto rescale = update<Operands>(state.maximum, state.group_maximum, state.factor);
    for (std::int64_t row = 0; row < rows_; ++row) quantize_row(head, row, keys);
    const Floats arriving[1] = {Lanes::to_floats(Lanes::load(state.group_sum))};
    accumulate_sum<Operands>(state.sum, arriving, rescale);
    Lanes::store(state.old_weight, rescale.old_weight[0]);
    Lanes::store(state.new_weight, rescale.new_weight[0]);
  }

  // kHidden for keys that the row does not see, and up to a whole vector.
  void mask(std::int64_t head, std::int64_t row, std::int64_t group, std::int64_t keys) {
    const std::int64_t visible = problem_.visible_keys(row / problem_.group_size()) - group;
    float* scores = scores_of(head, row);
    const std::int64_t end = round_up(keys, kLanes);
    for (std::int64_t key = visible < 0 ? 0 : visible; key < end; ++key) scores[key] = kHidden;
  }

  // Key 0 is a group of its own, as in start_state().
  void start(std::int64_t head, std::int64_t row) {
    float* scores = scores_of(head, row);
    states_[head].maximum[row] = scores[0];
    if (scores[0] == kHidden) return;
    states_[head].sum[row] = kUnit;
    const std::int8_t* value = problem_.v.row(work_.batch, 0, work_.head_kv + head);
    for (std::int64_t d = 0; d < problem_.head_dim; ++d) {
      output(head, row)[column_place(d)] = kUnit * static_cast<float>(value[d]);
    }
    scores[0] = kHidden;
  }

  static float largest(const float* scores, std::int64_t keys) {
    Floats most = Lanes::load(scores);
    for (std::int64_t key = kLanes; key < keys; key += kLanes) {
      most = Lanes::max(most, Lanes::load(scores + key));
    }
    return Lanes::reduce_max(most);
  }

  // Probabilities of a row as bytes, or as the upper and the lower bytes of its words, and their
  // sum in units of 1/65280.
  void quantize_row(std::int64_t head, std::int64_t row, std::int64_t keys) {
    State& state = states_[head];
    const QuantizeRows<Lanes> constants{
        Lanes::splat(state.group_maximum[row]), Lanes::splat(state.factor[row]), {}};
    state.is_words[row] = problem_.precision == Precision::high;
    if (!state.is_words[row]) {
      const std::int32_t sum = quantize_keys<Codes::bytes>(constants, head, row, keys);
      state.group_sum[row] = 256 * sum;
      state.is_words[row] = static_cast<float>(sum) < kLeastBytes;
    }
    if (state.is_words[row]) {
      state.group_sum[row] = quantize_keys<Codes::words>(constants, head, row, keys);
    }
  }

  template <Codes kCodes>
  std::int32_t quantize_keys(const QuantizeRows<Lanes>& constants, std::int64_t head,
                             std::int64_t row, std::int64_t keys) {
    const float* scores = scores_of(head, row);
    std::uint8_t* to = codes_of(head, row);
    Ints sum = Lanes::splat(0);
    for (std::int64_t key = 0; key < keys; key += kLanes) {
      const Ints codes = code<Operands, kCodes>(Lanes::load(scores + key), constants);
      sum = sum + codes;
      if constexpr (kCodes == Codes::words) {
        store_bytes<Lanes>(to + key, Lanes::template shift_right<8>(codes));
        store_bytes<Lanes>(to + kGroupKeys + key, codes);
      } else {
        store_bytes<Lanes>(to + key, codes);
      }
    }
    return Lanes::reduce_add(sum);
  }

  // Adds 16 values from `key` on, times their probabilities, to the sums of all rows. Four rows of
  // bytes, or two of words, take 16 registers of sums.
  void accumulate(std::int64_t head, const TokenRows& v, std::int64_t key) {
    const std::int64_t end = key + kLanes < v.count ? key + kLanes : v.count;
    const auto add = [&]<int kRows, int kPlanes>(std::int64_t row) {
      for (std::int64_t d = 0; d < problem_.head_dim; d += kVectorBytes) {
        add_tokens<kRows, kPlanes>(v, key, end, d, codes_of(head, row), sums(head, row),
                                   problem_.head_dim);
      }
    };
    const auto add_run = [&]<int kRows>(std::int64_t row) {
      constexpr int kMostWords = kRows < 2 ? 1 : 2;
      if (!states_[head].is_words[row]) return add.template operator()<kRows, 1>(row);
      add.template operator()<kMostWords, 2>(row);
      if constexpr (kRows > kMostWords) add.template operator()<kMostWords, 2>(row + kMostWords);
    };
    each_rows(head, true, add_run);
  }

  // output = sums * new_weight + output * old_weight
  void drain(std::int64_t head, std::int64_t row) {
    const State& state = states_[head];
    const float count = state.is_words[row] ? 1.0F : 256.0F;
    const Floats old_weight = Lanes::splat(state.old_weight[row]);
    const Floats new_weight = Lanes::splat(state.new_weight[row] * count);
    for (std::int64_t d = 0; d < problem_.head_dim; d += kLanes) {
      float* at = output(head, row) + d;
      const Floats sum = Lanes::to_floats(Lanes::load(sums(head, row) + d));
      Lanes::store(at, Lanes::fma(sum, new_weight, Lanes::load(at) * old_weight));
    }
  }

  void hand_over(std::int64_t head, std::int64_t row) const {
    const std::int64_t pair = work_.batch * problem_.heads_kv + work_.head_kv + head;
    float* to = work_.partials.state(pair, work_.chunk, row);
    to[Partials::kMaximum] = states_[head].maximum[row];
    to[Partials::kSum] = states_[head].sum[row];
    for (std::int64_t d = 0; d < problem_.head_dim; ++d) {
      to[Partials::kOutput + d] = output(head, row)[column_place(d)];
    }
  }

  template <class T>
  T* at_row(T* data, std::int64_t head, std::int64_t row, std::int64_t elements) const {
    return data + (head * rows_ + row) * elements;
  }
  std::int8_t* query(std::int64_t head, std::int64_t row) const {
    return at_row(queries_, head, row, problem_.head_dim);
  }
  float* output(std::int64_t head, std::int64_t row) const {
    return at_row(output_, head, row, problem_.head_dim);
  }
  std::int32_t* sums(std::int64_t head, std::int64_t row) const {
    return at_row(sums_, head, row, problem_.head_dim);
  }
  float* scores_of(std::int64_t head, std::int64_t row) const {
    return at_row(scores_, head, row, kGroupKeys);
  }
  std::uint8_t* codes_of(std::int64_t head, std::int64_t row) const {
    return at_row(codes_, head, row, 2 * kGroupKeys);
  }

  const Work& work_;
  const core::Problem& problem_;
  const std::int64_t rows_;  // of a head
  // [head][row][..]
  std::int8_t* queries_;  // column
  float* output_;         // column_place(column)
  std::int32_t* sums_;    // column_place(column)
  float* scores_;         // key
  std::uint8_t* codes_;   // plane, key
  State* states_;         // [head]
  std::int8_t* zeros_;    // a token that is not there
};

}  // namespace
}  // namespace qattn::cpu
