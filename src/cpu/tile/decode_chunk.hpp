// Step::chunk on the tile registers, for few rows of many heads (decode_products.hpp).
//
//   for group of keys in the chunk:
//     for tile of 16 keys:
//       for head: scores
//     for set of heads:                    rows of several heads share the lanes of one softmax
//       mask; start the state, in the first; update; quantize
//     for tile of 16 values:
//       for head: accumulate
//
// Both products go through memory as it lies, and the processor prefetches it: asking for the lines
// ahead of time by instructions gives 15 GB/s where this gives 21 (GroupRows).
#pragma once

#include <cstdint>

#include "cpu/decode_shape.hpp"
#include "cpu/tile/decode_memory.hpp"
#include "cpu/tile/decode_products.hpp"
#include "cpu/tile/row_block.hpp"
#include "cpu/tile/set_operands.hpp"
#include "cpu/tile/store.hpp"
#include "cpu/tile/tile_transpose.hpp"
#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

template <class Lanes>
class DecodeChunk {
 public:
  static bool fits(const core::Problem& problem) {
    return problem.head_dim % kTileRowBytes == 0 && problem.rows() <= kSetLanes;
  }

  explicit DecodeChunk(const Work& work)
      : work_(work),
        problem_(*work.problem),
        shape_{problem_.head_dim, work.row_end, work.head_count},
        memory_(work.scratch, shape_) {}

  void run() {
    for (std::int64_t set = 0; set < shape_.sets(); ++set) prepare(set);
    std::memset(memory_.output, 0, static_cast<std::size_t>(shape_.output_elements()) * 4);
    const std::int64_t begin = work_.chunk * kChunkKeys;
    const std::int64_t visible = problem_.visible_keys(problem_.seq_q - 1);
    const std::int64_t end = begin + kChunkKeys < visible ? begin + kChunkKeys : visible;
    for (std::int64_t group = begin; group < end; group += kGroupKeys) {
      keys_ = static_cast<int>(end - group < kGroupKeys ? end - group : kGroupKeys);
      interleaved_ = group + kGroupKeys <= problem_.visible_keys(0);
      compute_scores(group);
      any_words_ = false;
      for (std::int64_t set = 0; set < shape_.sets(); ++set) attend(set, group);
      if (any_words_) {
        accumulate<Codes::words>(group);
      } else {
        accumulate<Codes::bytes>(group);
      }
    }
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      for (std::int64_t row = 0; row < shape_.rows; ++row) hand_over(head, row);
    }
  }

 private:
  using Operands = SetOperands<Lanes>;
  using Floats = typename Lanes::Floats;
  static constexpr std::int64_t kSetCodes = kGroupKeys * kSetLanes;

  // Heads of the task that lie in a set, and the lane of a row.
  std::int64_t first_head(std::int64_t set) const { return set * shape_.set_heads(); }
  std::int64_t end_head(std::int64_t set) const {
    const std::int64_t end = first_head(set + 1);
    return end < shape_.heads ? end : shape_.heads;
  }
  std::int64_t lane(std::int64_t head, std::int64_t row) const {
    return head % shape_.set_heads() * shape_.rows + row;
  }
  void prepare(std::int64_t set) {
    std::int32_t* visible = memory_.visible + set * kSetLanes;
    const std::int64_t at = set * kSetLanes;
    for (std::int64_t i = 0; i < kSetLanes; ++i) {  // lanes without a row, at first
      visible[i] = static_cast<std::int32_t>(problem_.visible_keys(problem_.seq_q - 1));
      memory_.factor[at + i] = memory_.negated[at + i] = memory_.sum[at + i] = 0;
      memory_.maximum[at + i] = kHidden;
    }
    const std::int64_t group_size = problem_.group_size();
    for (std::int64_t head = first_head(set); head < end_head(set); ++head) {
      std::int32_t* to = memory_.queries + head * (shape_.head_dim * kSetLanes / 4);
      std::memset(to, 0, static_cast<std::size_t>(shape_.head_dim * kSetLanes));
      for (std::int64_t row = 0; row < shape_.rows; ++row) {
        const std::int64_t query = row / group_size;
        const std::int64_t head_kv = work_.head_kv + head;
        const std::int64_t head_q = head_kv * group_size + row % group_size;
        const std::int64_t i = lane(head, row);
        const ScoreFactor c = score_factor(problem_, head_q, head_kv);
        visible[i] = static_cast<std::int32_t>(problem_.visible_keys(query));
        memory_.factor[at + i] = c.exponent;
        memory_.negated[at + i] = c.negative ? 1.0F : 0.0F;
        any_negated_ = any_negated_ || c.negative;
        const std::int8_t* from = problem_.q.row(work_.batch, query, head_q);
        for (std::int64_t quad = 0; quad < shape_.head_dim / 4; ++quad) {
          std::memcpy(to + quad * kSetLanes + i, from + 4 * quad, 4);
        }
      }
    }
  }

  int tiles() const { return static_cast<int>((keys_ + kTileRows - 1) / kTileRows); }
  GroupRows group_rows(const core::InputRef& tensor, std::int64_t group) const {
    return {tensor,        work_.batch,  group,       problem_.seq_k - group,
            work_.head_kv, interleaved_, memory_.tail};
  }
  float* scores_of(std::int64_t set) const { return memory_.scores + set * kSetCodes; }

  void compute_scores(std::int64_t group) {
    const GroupRows keys = group_rows(problem_.k, group);
    const auto compute = [&]<int kSum>(int tile, std::int64_t set) __attribute__((always_inline)) {
      load_tile<kSum>(kIntegerTile.bits, kTileRowBytes);
      for (std::int64_t head = first_head(set); head < end_head(set); ++head) {
        add_scores<kSum>(keys, tile, head,
                         memory_.queries + head * (shape_.head_dim * kSetLanes / 4),
                         shape_.head_dim);
      }
      store_tile<kSum>(scores_of(set) + tile * kTileRows * kSetLanes, kTileRowBytes);
    };
    for (int tile = 0; tile < tiles(); ++tile) {
      for (std::int64_t set = 0; set < shape_.sets(); set += 2) {
        compute.template operator()<0>(tile, set);
        if (set + 1 < shape_.sets()) compute.template operator()<1>(tile, set + 1);
      }
    }
  }

  void attend(std::int64_t set, std::int64_t group) {
    float* scores = scores_of(set);
    const std::int64_t at = set * kSetLanes;
    const int keys = tiles() * static_cast<int>(kTileRows);
    const int least = count_keys(memory_.visible + at, group);
    if (any_negated_) negate<Operands>(scores, memory_.negated + at, keys);
    if (least < keys) mask<Operands>(scores, memory_.group_keys, least, keys);
    if (group == 0) start(set);
    row_maxima<Operands>(memory_.group_maximum, scores, keys);
    const auto rescale =
        update<Operands>(memory_.maximum + at, memory_.group_maximum, memory_.factor + at);
    quantize_set(set, keys);
    const Floats arriving[1] = {Lanes::to_floats(Lanes::load(memory_.group_sum))};
    accumulate_sum<Operands>(memory_.sum + at, arriving, rescale);
    Lanes::store(memory_.old_weight + set * kSetLanes, rescale.old_weight[0]);
    Lanes::store(memory_.new_weight + set * kSetLanes, rescale.new_weight[0]);
    for (int tile = 0; tile < tiles(); ++tile) transpose_codes(set, tile);
  }

  // Sets the visible keys of every lane in the group and returns the least.
  int count_keys(const std::int32_t* visible, std::int64_t group) {
    float least = static_cast<float>(kGroupKeys);
    for (std::int64_t i = 0; i < kSetLanes; ++i) {
      const std::int64_t keys = visible[i] - group;
      memory_.group_keys[i] = static_cast<float>(keys < 0            ? 0
                                                 : keys < kGroupKeys ? keys
                                                                     : kGroupKeys);
      least = memory_.group_keys[i] < least ? memory_.group_keys[i] : least;
    }
    return static_cast<int>(least);
  }

  // Key 0 is a group of its own, as in start_state().
  void start(std::int64_t set) {
    const std::int64_t at = set * kSetLanes;
    float* scores = scores_of(set);
    const auto score = Lanes::load(scores);
    const auto visible = Lanes::splat(kHidden) < score;
    Lanes::store(memory_.maximum + at, score);
    Lanes::store(memory_.sum + at, Lanes::select(visible, Lanes::splat(kUnit), Lanes::splat(0.0F)));
    Lanes::store(scores, Lanes::splat(kHidden));
    for (std::int64_t head = first_head(set); head < end_head(set); ++head) {
      const std::int8_t* value = problem_.v.row(work_.batch, 0, work_.head_kv + head);
      for (std::int64_t row = 0; row < shape_.rows; ++row) {
        if (memory_.visible[at + lane(head, row)] == 0) continue;
        float* output = output_of(head, row);
        for (std::int64_t d = 0; d < shape_.head_dim; ++d) {
          output[column(d)] = kUnit * static_cast<float>(value[d]);
        }
      }
    }
  }

  void quantize_set(std::int64_t set, int keys) {
    const BlockRows rows{memory_.factor + set * kSetLanes, nullptr, nullptr};
    const auto as = [&]<Codes kCodes>() {
      quantize<Operands, kCodes>(rows, memory_.group_maximum, scores_of(set), keys, memory_.codes,
                                 memory_.group_sum);
    };
    is_words_[set] = true;
    if (problem_.precision == Precision::high) {
      as.template operator()<Codes::words>();
    } else {
      as.template operator()<Codes::bytes>();
      is_words_[set] = any_needs_words<Operands>(memory_.group_sum);
      if (is_words_[set]) as.template operator()<Codes::mixed>();
    }
    any_words_ = any_words_ || is_words_[set];
  }

  // Codes of 16 keys, from [key][lane] to [lane][key].
  void transpose_codes(std::int64_t set, int tile) {
    __m512i square[kTileRows];
    const std::int32_t* from = memory_.codes + tile * kTileRows * kSetLanes;
    for (int i = 0; i < kTileRows; ++i) square[i] = _mm512_load_si512(from + i * kSetLanes);
    transpose_dwords(square);
    std::int32_t* to = memory_.by_lane + set * kSetCodes + tile * kTileRows;
    for (int i = 0; i < kTileRows; ++i) _mm512_store_si512(to + i * kGroupKeys, square[i]);
  }

  // Units (add_values()) of a row: its byte, or the upper and the lower byte of its words. Sets
  // with bytes beside sets with words are taken as words, too.
  template <Codes kCodes>
  static constexpr int kUnits = kCodes == Codes::bytes ? 1 : 2;

  template <Codes kCodes>
  void accumulate(std::int64_t group) {
    constexpr std::int64_t kOperandRows = 4 / kUnits<kCodes>;  // rows in a left operand
    const GroupRows values = group_rows(problem_.v, group);
    for (std::int64_t row = 0; row < shape_.rows; row += 2 * kOperandRows) {
      const std::int64_t left = shape_.rows - row;
      const std::int64_t rows = left < 2 * kOperandRows ? left : 2 * kOperandRows;
      // Sums and left operands have as many rows as their units take.
      const std::int64_t units = (rows < kOperandRows ? rows : kOperandRows) * kUnits<kCodes>;
      TileConfig config = kWholeTiles;
      for (int tile = 0; tile < 6; ++tile) config.rows[tile] = static_cast<std::uint8_t>(4 * units);
      configure_tiles(config);
      if (rows <= kOperandRows) {
        accumulate_rows<kCodes, 1>(values, row, rows);
      } else {
        accumulate_rows<kCodes, 2>(values, row, rows);
      }
    }
    configure_tiles(kWholeTiles);
  }

  template <Codes kCodes, int kOperands>
  void accumulate_rows(const GroupRows& values, std::int64_t row, std::int64_t rows) {
    const std::int64_t blocks = shape_.head_dim / kTileRowBytes;
    const int run = shape_.run_tiles();
    for (int tile = 0; tile < tiles(); tile += run) {
      const int end = tile + run < tiles() ? tile + run : tiles();
      for (std::int64_t head = 0; head < shape_.heads; ++head) {
        for (int t = tile; t < end; ++t) expand_rows<kCodes>(head, row, rows, t);
      }
      PendingSums pending;
      bool second_set = false;
      const auto add = [&]<int kBlocks>(std::int64_t head, std::int64_t block)
          __attribute__((always_inline)) {
        const std::int8_t* expanded = memory_.expanded + head * run * 2 * kTileBytes;
        const std::int64_t d = block * kTileRowBytes;
        std::int32_t* sums = sums_of(head, block, 0);
        if constexpr (kOperands == 2) {
          add_values<0, kBlocks, true>(values, tile, end, head, d, expanded, sums, pending);
          add_values<1, kBlocks, false>(values, tile, end, head, d, expanded + kTileBytes,
                                        sums + kBlocks * kTileElements, pending);
        } else if (second_set) {
          add_values<1, kBlocks, true>(values, tile, end, head, d, expanded, sums, pending);
        } else {
          add_values<0, kBlocks, true>(values, tile, end, head, d, expanded, sums, pending);
        }
        second_set = !second_set;
      };
      for (std::int64_t head = 0; head < shape_.heads; ++head) {
        std::int64_t block = 0;
        for (; block + 2 <= blocks; block += 2) add.template operator()<2>(head, block);
        if (block < blocks) add.template operator()<1>(head, block);
      }
      pending.flush();
    }
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      for (std::int64_t block = 0; block < blocks; ++block) drain<kCodes>(head, row, rows, block);
    }
  }

  // Sums of `block` for a left operand: those of a pair of blocks lie together.
  std::int32_t* sums_of(std::int64_t head, std::int64_t block, std::int64_t operand) const {
    const std::int64_t blocks = shape_.head_dim / kTileRowBytes;
    const std::int64_t first = block / 2 * 2;
    const std::int64_t width = first + 2 <= blocks ? 2 : 1;
    return memory_.sums +
           (head * 2 * blocks + 2 * first + operand * width + block % 2) * kTileElements;
  }

  // Rows [row, row + rows) of a head as left operands.
  template <Codes kCodes>
  void expand_rows(std::int64_t head, std::int64_t row, std::int64_t rows, int tile) {
    const std::int64_t set = head / shape_.set_heads();
    const std::int32_t* codes =
        memory_.by_lane + set * kSetCodes + lane(head, row) * kGroupKeys + tile * kTileRows;
    std::int8_t* to =
        memory_.expanded + (head * shape_.run_tiles() + tile % shape_.run_tiles()) * 2 * kTileBytes;
    // Unit after unit: the second operand follows the first one.
    for (std::int64_t i = 0; i < rows; ++i, codes += kGroupKeys) {
      const __m512i x = _mm512_load_si512(codes);
      if constexpr (kCodes == Codes::bytes) {
        to = expand(to, x);
      } else {
        const __m512i words = is_words_[set] ? x : _mm512_slli_epi32(x, 8);
        to = expand(to, _mm512_srli_epi32(words, 8));
        to = expand(to, _mm512_and_si512(words, _mm512_set1_epi32(0xFF)));
      }
    }
  }

  // output = sums * new_weight + output * old_weight, for rows [row, row + rows) of a head and 64
  // columns.
  template <Codes kCodes>
  void drain(std::int64_t head, std::int64_t row, std::int64_t rows, std::int64_t block) {
    constexpr int kUnitSums = 4 * static_cast<int>(kTileRows);
    constexpr std::int64_t kOperandRows = 4 / kUnits<kCodes>;
    constexpr float kCount = kCodes == Codes::bytes ? 256.0F : 1.0F;
    const std::int64_t at = head / shape_.set_heads() * kSetLanes + lane(head, row);
    float* output = output_of(head, row) + block * kTileRowBytes;
    const std::int32_t* sums = sums_of(head, block, 0);
    for (std::int64_t i = 0; i < rows; ++i, output += shape_.head_dim) {
      if (i == kOperandRows) sums = sums_of(head, block, 1);
      const auto old_weight = Lanes::splat(memory_.old_weight[at + i]);
      const auto new_weight = Lanes::splat(memory_.new_weight[at + i] * kCount);
#pragma GCC unroll 4
      for (int t = 0; t < 4; ++t) {
        auto sum = Lanes::load(sums + t * kTileRows);
        if constexpr (kCodes != Codes::bytes) {
          sum = Lanes::template shift_left<8>(sum) + Lanes::load(sums + kUnitSums + t * kTileRows);
        }
        float* o = output + t * kSetLanes;
        Lanes::store(o, Lanes::fma(Lanes::to_floats(sum), new_weight, Lanes::load(o) * old_weight));
      }
      sums += kUnits<kCodes> * kUnitSums;
    }
  }

  // Outputs lie as the products give them: of each 64 columns, those with the same rest by 4.
  float* output_of(std::int64_t head, std::int64_t row) const {
    return memory_.output + (head * shape_.rows + row) * shape_.head_dim;
  }
  static std::int64_t column(std::int64_t d) {
    return d / kTileRowBytes * kTileRowBytes + d % 4 * kSetLanes + d % kTileRowBytes / 4;
  }

  void hand_over(std::int64_t head, std::int64_t row) const {
    const std::int64_t pair = work_.batch * problem_.heads_kv + work_.head_kv + head;
    float* to = work_.partials.state(pair, work_.chunk, row);
    const std::int64_t at = head / shape_.set_heads() * kSetLanes + lane(head, row);
    to[Partials::kMaximum] = memory_.maximum[at];
    to[Partials::kSum] = memory_.sum[at];
    const float* output = output_of(head, row);
    for (std::int64_t d = 0; d < shape_.head_dim; ++d)
      to[Partials::kOutput + d] = output[column(d)];
  }

  const Work& work_;
  const core::Problem& problem_;
  const DecodeShape shape_;
  const DecodeMemory memory_;
  int keys_ = 0;  // of the group that some row sees
  bool any_negated_ = false;
  bool is_words_[kMaxChunkHeads] = {};  // [set]
  bool any_words_ = false;
  bool interleaved_ = false;  // GroupRows
};

}  // namespace
}  // namespace qattn::cpu
