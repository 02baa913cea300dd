// Both matrix products of a tier whose dot product takes a vector of rows and a broadcast element:
// packing, S^T = K * Q^T and O^T = V^T * P^T.
//
// Lanes are rows. The rows operand lies as [step][row vectors][lanes], the panel operand as
// [panel][step][kPanel], so that both products are the same walk over two contiguous streams.
//
// A tier with another kind of product (tiles) brings a class of its own with the same members.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/scratch.hpp"
#include "cpu/tile/elements.hpp"
#include "cpu/tile/numerics.hpp"

namespace qattn::cpu {
namespace {

// Steps are padded to the square that the transposition works on.
constexpr int kSquare = 4;

inline void transpose(Dwords4& a, Dwords4& b, Dwords4& c, Dwords4& d) {
  const Dwords4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Dwords4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Dwords4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Dwords4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

// The row of a tensor where there is none.
alignas(64) constexpr std::int8_t kZeroRow[256] = {};

template <class LanesType, class ElementsType, int kRowVectorsValue, int kPanelValue>
struct PanelOperands {
  using Lanes = LanesType;
  using Elements = ElementsType;
  using Ints = typename Lanes::Ints;
  static constexpr int kRowVectors = kRowVectorsValue;
  static constexpr int kBlockRows = kRowVectors * Lanes::kLanes;
  static constexpr int kPanel = kPanelValue;
  static constexpr int kStep = Elements::kStep;
  static constexpr int kKeySteps = static_cast<int>(kGroupKeys) / kStep;
  // Scores are written and probabilities packed for multiples of this many keys.
  static constexpr int kKeyQuantum = kPanel > kStep ? kPanel : kStep;
  static_assert(kBlockRows <= kMaxBlockRows && kBlockRows % kSquare == 0);
  static_assert(kKeyQuantum % kPanel == 0 && kKeyQuantum % kStep == 0);
  static_assert(kPanel % kSquare == 0);
  // Sums of panel columns take whole vectors.
  static_assert(kSquare * kPanel % Lanes::kLanes == 0);
  static_assert(kKeyQuantum / kStep * kPanel % Lanes::kLanes == 0);

  static constexpr std::int64_t steps(std::int64_t head_dim) {
    return (head_dim + kStep - 1) / kStep;
  }
  static constexpr std::int64_t padded_steps(std::int64_t head_dim) {
    return round_up(steps(head_dim), kSquare);
  }
  static constexpr std::int64_t query_elements(std::int64_t head_dim) {  // per row block
    return padded_steps(head_dim) * kBlockRows;
  }
  static constexpr std::int64_t key_elements(std::int64_t head_dim) {
    return padded_steps(head_dim) * kGroupKeys;
  }
  static constexpr std::int64_t value_elements(std::int64_t head_dim) {
    return padded_columns(head_dim) * kKeySteps;
  }
  static constexpr std::int64_t probability_elements() {
    return std::int64_t{Elements::operands(Codes::words)} * kKeySteps * kBlockRows;
  }

  // One row block of queries.
  static void pack_queries(std::int32_t* to, const std::int8_t* const* rows,
                           std::int64_t head_dim) {
    for (int row = 0; row < kBlockRows; row += kSquare) {
      pack_square<true>(to + row, kBlockRows, rows + row, head_dim);
    }
  }

  // The keys of a group, as whole panels, and the numbers that their score sums start from: the
  // float kInteger, less what the offset of the queries adds.
  static void pack_keys(std::int32_t* to, std::int32_t* starts, const std::int8_t* const* rows,
                        int keys, std::int64_t head_dim) {
    const std::int64_t panel_elements = padded_steps(head_dim) * kPanel;
    for (int key = 0; key < round_up(keys, kPanel); key += kSquare) {
      pack_square<false>(to + key / kPanel * panel_elements + key % kPanel, kPanel, rows + key,
                         head_dim);
    }
    for (int key = 0; key < keys; key += kPanel) {
      start_sums(starts + key, to + key / kPanel * panel_elements, panel_elements, kIntegerBits,
                 -Elements::kQueryOffset);
    }
  }

  // The values of a group.
  static void pack_values(std::int32_t* to, const std::int8_t* const* rows, int keys,
                          std::int64_t head_dim) {
    constexpr int kChunk = 16;
    const int key_end = static_cast<int>(round_up(keys, kKeyQuantum));
    for (int key = 0; key < key_end; key += kStep) {
      const auto put = [&](std::int64_t d, const std::int8_t* const(&from)[kStep]) {
        Dwords4 elements[kChunk / kSquare];
        Elements::interleave(elements, from);
        for (int i = 0; i < kChunk / kSquare; ++i) {
          const std::int64_t column = d + kSquare * i;
          store_dwords(
              to + column / kPanel * (kPanel * kKeySteps) + key / kStep * kPanel + column % kPanel,
              elements[i]);
        }
      };
      const std::int8_t* from[kStep];
      for (int i = 0; i < kStep; ++i) from[i] = rows[key + i];
      std::int64_t d = 0;
      for (; d + kChunk <= head_dim; d += kChunk) {
        put(d, from);
        for (auto& row : from) row += kChunk;
      }
      if (d == head_dim) continue;
      alignas(16) std::int8_t tails[kStep][kChunk] = {};
      for (int i = 0; i < kStep; ++i) {
        std::memcpy(tails[i], from[i], static_cast<std::size_t>(head_dim - d));
        from[i] = tails[i];
      }
      put(d, from);
    }
  }

  // Whether products() over 16-bit probabilities needs start_values().
  static constexpr bool kStartsValues = Elements::kWordBias != 0;

  // The numbers that sums over the biased 16-bit probabilities of keys [0, keys) start from.
  static void start_values(std::int32_t* starts, const std::int32_t* values, int keys,
                           std::int64_t head_dim) {
    for (std::int64_t d = 0; d < head_dim; d += kPanel) {
      start_sums(starts + d, values + d * kKeySteps, std::int64_t{keys / kStep} * kPanel, 0,
                 -Elements::kWordBias);
    }
  }

  // scores[key][row] = kInteger + exact dot product, as floats, for keys [0, keys).
  static void scores(float* scores, const std::int32_t* queries, const std::int32_t* packed_keys,
                     const std::int32_t* starts, int keys, std::int64_t head_dim) {
    const std::int64_t panel_elements = padded_steps(head_dim) * kPanel;
    for (int key = 0; key < keys; key += kPanel) {
      Ints sums[kRowVectors][kPanel];
      product<kRowVectors>(sums, starts + key, queries, packed_keys + key / kPanel * panel_elements,
                           steps(head_dim));
#pragma GCC unroll 16
      for (int i = 0; i < kPanel; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kRowVectors; ++v) {
          Lanes::store(scores + (key + i) * kBlockRows + v * Lanes::kLanes,
                       Lanes::as_floats(sums[v][i]));
        }
      }
    }
  }

  static void keep_awake() {}
  // Whether bytes lie as the upper bytes of words do.
  static constexpr bool kBytesAreWords = false;

  // Stores the probabilities of kStep keys for row vector v and adds them to `sums`.
  template <Codes kCodes>
  [[gnu::always_inline]] static void put(std::int32_t* probabilities, int v, int step,
                                         const Ints (&codes)[kStep],
                                         Ints (&sums)[Elements::operands(kCodes)]) {
    constexpr int kOperands = Elements::operands(kCodes);
    Ints packed[kOperands];
    Elements::template pack<kCodes>(packed, codes);
    for (int i = 0; i < kOperands; ++i) {
      sums[i] = Elements::dot(sums[i], packed[i], Lanes::splat(Elements::kOnes));
      // One operand: the row vectors of a step side by side. Two: each row vector on its own.
      const int vector =
          kOperands == 1 ? step * kRowVectors + v : (v * kKeySteps + step) * kOperands + i;
      Lanes::store(probabilities + vector * Lanes::kLanes, packed[i]);
    }
  }

  // Calls drain(d, v, sum) with the integer sums of probability * value for every d and row vector.
  // (They stay in registers: no room for them is needed.)
  template <Codes kCodes, class Drain>
  static void products(const std::int32_t* probabilities, const std::int32_t* values,
                       const std::int32_t* starts, int key_steps, std::int64_t head_dim,
                       std::int32_t*, Drain drain) {
    constexpr int kOperands = Elements::operands(kCodes);
    constexpr int kVectors = kOperands == 1 ? kRowVectors : kOperands;
    constexpr int kParts = kOperands == 1 ? 1 : kRowVectors;
    constexpr bool kBiased = kCodes != Codes::bytes && kStartsValues;
    for (std::int64_t d = 0; d < head_dim; d += kPanel) {
      for (int part = 0; part < kParts; ++part) {
        Ints sums[kVectors][kPanel];
        product<kVectors>(sums, kBiased ? starts + d : nullptr,
                          probabilities + part * (kKeySteps * kVectors * Lanes::kLanes),
                          values + d * kKeySteps, key_steps);
#pragma GCC unroll 16
        for (int i = 0; i < kPanel; ++i) {
          if constexpr (kOperands == 1) {
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) drain(d + i, v, sums[v][i]);
          } else {
            drain(d + i, part, Elements::combine({sums[0][i], sums[1][i]}));
          }
        }
      }
    }
  }

 private:
  // sums[v][i] = starts[i] + rows[v] . panel[i] over `steps` steps; null starts are zeros.
  template <int kVectors>
  [[gnu::always_inline]] static void product(Ints (&sums)[kVectors][kPanel],
                                             const std::int32_t* starts, const std::int32_t* rows,
                                             const std::int32_t* panel, std::int64_t steps) {
    typename Lanes::Sum s[kVectors][kPanel];
#pragma GCC unroll 16
    for (int i = 0; i < kPanel; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        s[v][i] = Lanes::hold(Lanes::splat(starts == nullptr ? 0 : starts[i]));
      }
    }
    do {
      Ints row[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) row[v] = Lanes::load(rows + v * Lanes::kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kPanel; ++i) {
        const Ints element = Lanes::splat(panel[i]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          s[v][i] = Lanes::hold(Elements::dot(Lanes::value(s[v][i]), row[v], element));
        }
      }
      rows += kVectors * Lanes::kLanes;
      panel += kPanel;
    } while (--steps != 0);
#pragma GCC unroll 16
    for (int i = 0; i < kPanel; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[v][i] = Lanes::value(s[v][i]);
    }
  }

  // starts[i] = base + factor * sum of the values in column i of a panel.
  static void start_sums(std::int32_t* starts, const std::int32_t* panel, std::int64_t elements,
                         std::int32_t base, std::int32_t factor) {
    if (factor == 0) {
      for (int i = 0; i < kPanel; ++i) starts[i] = base;
      return;
    }
    // As many columns of sums as a vector has lanes or a panel has columns, folded at the end.
    constexpr int kWidth = Lanes::kLanes > kPanel ? Lanes::kLanes : kPanel;
    alignas(kScratchAlignment) std::int32_t sums[kWidth];
    for (int lane = 0; lane < kWidth; lane += Lanes::kLanes) {
      Ints sum = Lanes::splat(0);
      for (std::int64_t i = lane; i < elements; i += kWidth) {
        sum = Elements::dot(sum, Lanes::splat(Elements::kOnes), Lanes::load(panel + i));
      }
      Lanes::store(sums + lane, sum);
    }
    for (int i = 0; i < kPanel; ++i) {
      std::int32_t column = 0;
      for (int j = i; j < kWidth; j += kPanel) column += sums[j];
      starts[i] = base + factor * column;
    }
  }

  // Four rows of a tensor become four columns of [step][width].
  template <bool kQueries>
  static void pack_square(std::int32_t* to, int width, const std::int8_t* const* rows,
                          std::int64_t head_dim) {
    constexpr int kChunk = kSquare * kStep;
    const auto put = [&](const std::int8_t* a, const std::int8_t* b, const std::int8_t* c,
                         const std::int8_t* d) {
      const auto load = [](const std::int8_t* from) {
        return kQueries ? Elements::query(Elements::widen(from)) : Elements::widen(from);
      };
      Dwords4 column_a = load(a);
      Dwords4 column_b = load(b);
      Dwords4 column_c = load(c);
      Dwords4 column_d = load(d);
      transpose(column_a, column_b, column_c, column_d);
      store_dwords(to, column_a);
      store_dwords(to + width, column_b);
      store_dwords(to + 2 * width, column_c);
      store_dwords(to + 3 * width, column_d);
      to += kSquare * width;
    };
    std::int64_t d = 0;
    for (; d + kChunk <= head_dim; d += kChunk) {
      put(rows[0] + d, rows[1] + d, rows[2] + d, rows[3] + d);
    }
    if (d == head_dim) return;
    alignas(16) std::int8_t tails[kSquare][kChunk] = {};
    for (int i = 0; i < kSquare; ++i) {
      std::memcpy(tails[i], rows[i] + d, static_cast<std::size_t>(head_dim - d));
    }
    put(tails[0], tails[1], tails[2], tails[3]);
  }
};

}  // namespace
}  // namespace qattn::cpu
