// Step::chunk on vectors, for few rows of many heads: keys and values are used once, so they are
// read as they lie in the caller's memory instead of being packed into panels.
//
//   for group of keys in the chunk:
//     for four keys:
//       for head: scores
//     for head:
//       mask; start the states, in the first group; update; quantize
//     for eight values:
//       for head: accumulate
//     for head: add the sums to the output
//
// Memory decides, so it is read as the processor prefetches it by itself: heads come inside keys,
// since tokens lie in memory with their heads side by side, and the keys taken together are 32
// tokens apart (GroupTokens). Instructions that prefetch have no more than some 24 lines under way,
// 15 GB/s where four such streams get 26; they help where the order changes. Lanes are keys in the
// softmax, rows in the update of states and columns in the output.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>

#include "cpu/decode_shape.hpp"
#include "cpu/tile/row_block.hpp"
#include "cpu/tile/store.hpp"
#include "cpu/tile/vector_memory.hpp"
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
  static bool fits(const core::Problem& problem) {
    return problem.head_dim % kVectorBytes == 0 && problem.rows() <= kMaxVectorRows;
  }

  explicit VectorChunk(const Work& work)
      : work_(work),
        problem_(*work.problem),
        shape_{problem_.head_dim, work.row_end, work.head_count},
        memory_(work.scratch, shape_) {}

  void run() {
    std::memset(memory_.output(0, 0), 0, static_cast<std::size_t>(shape_.output_elements()) * 4);
    for (std::int64_t head = 0; head < shape_.heads; ++head) prepare(head);
    const std::int64_t begin = work_.chunk * kChunkKeys;
    const std::int64_t visible = problem_.visible_keys(problem_.seq_q - 1);
    const std::int64_t end = begin + kChunkKeys < visible ? begin + kChunkKeys : visible;
    Group next = group_at(begin, end);
    while (next.keys > 0) {
      const Group group = next;
      next = group_at(group.begin + kGroupKeys, end);
      attend(group, next);
    }
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      for (std::int64_t row = 0; row < shape_.rows; ++row) hand_over(head, row);
    }
  }

 private:
  using Operands = VectorOperands<Lanes>;
  using Floats = typename Lanes::Floats;
  using Ints = typename Lanes::Ints;
  using Memory = VectorMemory<Lanes>;
  using State = VectorState<Lanes>;
  static constexpr std::int64_t kLanes = Lanes::kLanes;

  struct Group {
    std::int64_t begin;
    std::int64_t keys;  // not positive behind the last group
    bool spread;        // GroupTokens; rows that do not see all keys want them in order
  };

  Group group_at(std::int64_t begin, std::int64_t end) const {
    const std::int64_t keys = end - begin < kGroupKeys ? end - begin : kGroupKeys;
    return {begin, keys, begin + kGroupKeys <= problem_.visible_keys(0)};
  }
  GroupTokens tokens(const core::InputRef& tensor, const Group& group) const {
    return {tensor.row(work_.batch, group.begin, work_.head_kv), tensor.strides.seq, group.keys,
            group.spread};
  }

  void prepare(std::int64_t head) {
    const std::int64_t group_size = problem_.group_size();
    const std::int64_t head_kv = work_.head_kv + head;
    State& state = *new (&memory_.state(head)) State();
    const auto bytes = static_cast<std::size_t>(problem_.head_dim);
    for (std::int64_t row = 0; row < memory_.padded_rows(); ++row) {
      std::int8_t* to = memory_.query(head, row);
      std::int32_t offset = 0;  // keys count 128 more, as u8
      bool negative = false;
      if (row < shape_.rows) {
        const std::int64_t head_q = head_kv * group_size + row % group_size;
        const ScoreFactor c = score_factor(problem_, head_q, head_kv);
        state.factor[row] = c.exponent;
        negative = c.negative;
        std::memcpy(to, problem_.q.row(work_.batch, row / group_size, head_q), bytes);
        for (std::int64_t d = 0; d < problem_.head_dim; ++d) offset += 128 * to[d];
      } else {
        std::memset(to, 0, bytes);
      }
      // A score is (x ^ sign) + bias: -x is (x ^ -1) + 1.
      for (std::int64_t i = 0; i < kQuad; ++i) {
        memory_.sign(head, row)[i] = negative ? -1 : 0;
        memory_.bias(head, row)[i] = kIntegerBits + (negative ? 1 + offset : -offset);
      }
    }
  }

  void attend(const Group& group, const Group& next) {
    const GroupTokens k = tokens(problem_.k, group);
    const GroupTokens v = tokens(problem_.v, group);
    const std::int64_t quads = (group.keys + kQuad - 1) / kQuad;
    for (std::int64_t quad = 0; quad < quads; ++quad) compute_scores(k, quad);
    // Quads of values that are taken together, and such sets.
    const std::int64_t apart = group.spread ? kGroupQuads / kValueQuads : 1;
    const std::int64_t sets = (quads + kValueQuads - 1) / kValueQuads;
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      for (std::int64_t i = 0; i < kValueQuads; ++i) ask_for(problem_.v, v, i * apart, head);
      exponentiate(head, group.begin, group.keys);
    }
    std::memset(memory_.sums(0, 0), 0, static_cast<std::size_t>(shape_.output_elements()) * 4);
    for (std::int64_t set = 0; set < sets; ++set) {
      accumulate(v, group.spread ? set : set * kValueQuads, apart);
    }
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      if (next.keys > 0) ask_for(problem_.k, tokens(problem_.k, next), 0, head);
      for (std::int64_t row = 0; row < shape_.rows; ++row) drain(head, row);
    }
  }

  // Of the tokens that come after the softmax or the output, in which nothing else is read: with 32
  // kv heads 11.3 ms for 11.5 without, with 8 4.5 for 4.9.
  void ask_for(const core::InputRef& tensor, const GroupTokens& tokens, std::int64_t quad,
               std::int64_t head) const {
    for (std::int64_t i = 0; i < kQuad; ++i) {
      const std::int8_t* from = tokens.row(quad, i) + head * tensor.strides.heads;
      for (std::int64_t d = 0; d < problem_.head_dim; d += kVectorBytes) {
        prefetch<kSecondCache>(from, d);
      }
    }
  }

  // Calls `visit<head_dim>()`.
  template <class Visit>
  void with_head_dim(Visit&& visit) const {
    switch (problem_.head_dim / kVectorBytes) {
      case 1:
        return visit.template operator()<kVectorBytes>();
      case 2:
        return visit.template operator()<2 * kVectorBytes>();
      case 3:
        return visit.template operator()<3 * kVectorBytes>();
      default:  // head_dim is at most 256
        return visit.template operator()<4 * kVectorBytes>();
    }
  }

  // Calls `visit<kRows>(row)` for runs of one, two or four rows of one format.
  template <class Visit>
  void each_rows(std::int64_t head, Visit&& visit) const {
    const bool* is_words = memory_.state(head).is_words;
    const auto alike = [&](std::int64_t row, std::int64_t count) {
      if (row + count > shape_.rows) return false;
      for (std::int64_t i = 1; i < count; ++i) {
        if (is_words[row + i] != is_words[row]) return false;
      }
      return true;
    };
    for (std::int64_t row = 0; row < shape_.rows;) {
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

  void compute_scores(const GroupTokens& k, std::int64_t quad) {
    with_head_dim([&]<std::int64_t kHeadDim>() {
      switch (memory_.padded_rows()) {
        case 1:
          return compute_scores<1, kHeadDim>(k, quad);
        case 2:
          return compute_scores<2, kHeadDim>(k, quad);
        default:
          return compute_scores<4, kHeadDim>(k, quad);
      }
    });
  }

  // kInteger + score of four keys, for the rows of all heads.
  template <int kRows, std::int64_t kHeadDim>
  void compute_scores(const GroupTokens& k, std::int64_t quad) {
    constexpr int kOnceRows = kRows < Memory::kUnits ? kRows : Memory::kUnits;
    constexpr int kHeads = Memory::kUnits / kOnceRows;
    const std::int8_t* const keys[kQuad] = {k.row(quad, 0), k.row(quad, 1), k.row(quad, 2),
                                            k.row(quad, 3)};
    const std::int64_t stride = problem_.k.strides.heads;
    const std::int8_t* queries = memory_.query(0, 0);
    const std::int32_t* sign = memory_.sign(0, 0);
    const std::int32_t* bias = memory_.bias(0, 0);
    float* scores = memory_.scores(0, 0) + quad * kQuad;
    const auto compute = [&]<int kCount>(std::int64_t head) __attribute__((always_inline)) {
#pragma GCC unroll 2
      for (std::int64_t row = head * kRows; row < (head + kCount) * kRows;
           row += kCount * kOnceRows) {
        const Ints product = dot_quad<Lanes, kCount, kOnceRows, kHeadDim>(
            keys, head * stride, stride, queries + row * kHeadDim);
        const Ints score = (product ^ Lanes::load_unaligned(sign + row * kQuad)) +
                           Lanes::load_unaligned(bias + row * kQuad);
        store_units<Lanes, kCount * kOnceRows>(scores + row * kGroupKeys, kGroupKeys, score);
      }
    };
    std::int64_t head = 0;
    for (; head + kHeads <= shape_.heads; head += kHeads) {
      compute.template operator()<kHeads>(head);
    }
    for (; head < shape_.heads; ++head) compute.template operator()<1>(head);
  }

  void exponentiate(std::int64_t head, std::int64_t group, std::int64_t keys) {
    State& state = memory_.state(head);
    for (std::int64_t row = 0; row < shape_.rows; ++row) {
      mask(head, row, group, keys);
      if (group == 0) start(head, row);
      state.group_maximum[row] = largest(memory_.scores(head, row), keys);
    }
    const auto rescale = update<Operands>(state.maximum, state.group_maximum, state.factor);
    for (std::int64_t row = 0; row < shape_.rows; ++row) quantize_row(head, row, keys);
    const Floats arriving[1] = {Lanes::to_floats(Lanes::load(state.group_sum))};
    accumulate_sum<Operands>(state.sum, arriving, rescale);
    Lanes::store(state.old_weight, rescale.old_weight[0]);
    Lanes::store(state.new_weight, rescale.new_weight[0]);
  }

  // kHidden for keys that the row does not see, and up to a whole vector.
  void mask(std::int64_t head, std::int64_t row, std::int64_t group, std::int64_t keys) {
    const std::int64_t visible = problem_.visible_keys(row / problem_.group_size()) - group;
    float* scores = memory_.scores(head, row);
    const std::int64_t end = round_up(keys, kLanes);
    for (std::int64_t key = visible < 0 ? 0 : visible; key < end; ++key) scores[key] = kHidden;
  }

  // Key 0 is a group of its own, as in start_state().
  void start(std::int64_t head, std::int64_t row) {
    float* scores = memory_.scores(head, row);
    memory_.state(head).maximum[row] = scores[0];
    if (scores[0] == kHidden) return;
    memory_.state(head).sum[row] = kUnit;
    const std::int8_t* value = problem_.v.row(work_.batch, 0, work_.head_kv + head);
    for (std::int64_t d = 0; d < problem_.head_dim; ++d) {
      memory_.output(head, row)[column_place<Lanes>(d)] = kUnit * static_cast<float>(value[d]);
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
    State& state = memory_.state(head);
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
    const float* scores = memory_.scores(head, row);
    std::uint8_t* to = memory_.codes(head, row);
    Ints sum = Lanes::splat(0);
    for (std::int64_t key = 0; key < keys; key += kLanes) {
      const Ints codes = code<Operands, kCodes>(Lanes::load(scores + key), constants);
      sum = sum + codes;
      if constexpr (kCodes == Codes::words) {
        Lanes::store_low_bytes(to + key, Lanes::template shift_right<8>(codes));
        Lanes::store_low_bytes(to + kGroupKeys + key, codes);
      } else {
        Lanes::store_low_bytes(to + key, codes);
      }
    }
    return Lanes::reduce_add(sum);
  }

  // Adds the values of kValueQuads quads, from `quad` on and `apart`, times their probabilities, to
  // the sums of all rows.
  void accumulate(const GroupTokens& v, std::int64_t quad, std::int64_t apart) {
    ValueQuads values;
    values.code_stride = apart * kQuad;
    values.ahead = problem_.v.strides.seq;
    for (std::int64_t i = 0; i < kValueQuads * kQuad; ++i) {
      values.rows[i] = v.row(quad + i / kQuad * apart, i % kQuad);
    }
    with_head_dim([&]<std::int64_t kHeadDim>() { accumulate<kHeadDim>(values, quad * kQuad); });
  }

  template <std::int64_t kHeadDim>
  void accumulate(const ValueQuads& values, std::int64_t position) {
    std::int32_t* sums = memory_.sums(0, 0);
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      const std::int64_t offset = head * problem_.v.strides.heads;
      const auto add = [&]<int kRows, int kPlanes>(std::int64_t row) {
        const std::uint8_t* codes = memory_.codes(head, row) + position;
        std::int32_t* to = sums + (head * shape_.rows + row) * kHeadDim;
#pragma GCC unroll 4
        for (std::int64_t d = 0; d < kHeadDim; d += kLaneBytes<Lanes>) {
          add_values<Lanes, kRows, kPlanes, kHeadDim>(values, offset + d, codes, to + d);
        }
      };
      each_rows(head, [&]<int kRows>(std::int64_t row) {
        if (memory_.state(head).is_words[row]) {
          add.template operator()<kRows, 2>(row);
        } else {
          add.template operator()<kRows, 1>(row);
        }
      });
    }
  }

  // output = sums * new_weight + output * old_weight
  void drain(std::int64_t head, std::int64_t row) {
    const State& state = memory_.state(head);
    const float count = state.is_words[row] ? 1.0F : 256.0F;
    const Floats old_weight = Lanes::splat(state.old_weight[row]);
    const Floats new_weight = Lanes::splat(state.new_weight[row] * count);
    for (std::int64_t d = 0; d < problem_.head_dim; d += kLanes) {
      float* at = memory_.output(head, row) + d;
      const Floats sum = Lanes::to_floats(Lanes::load(memory_.sums(head, row) + d));
      Lanes::store(at, Lanes::fma(sum, new_weight, Lanes::load(at) * old_weight));
    }
  }

  void hand_over(std::int64_t head, std::int64_t row) const {
    const std::int64_t pair = work_.batch * problem_.heads_kv + work_.head_kv + head;
    float* to = work_.partials.state(pair, work_.chunk, row);
    to[Partials::kMaximum] = memory_.state(head).maximum[row];
    to[Partials::kSum] = memory_.state(head).sum[row];
    for (std::int64_t d = 0; d < problem_.head_dim; ++d) {
      to[Partials::kOutput + d] = memory_.output(head, row)[column_place<Lanes>(d)];
    }
  }

  const Work& work_;
  const core::Problem& problem_;
  const DecodeShape shape_;
  const Memory memory_;
};

}  // namespace
}  // namespace qattn::cpu
