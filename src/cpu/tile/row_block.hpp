// The verbs of the tile loop for one row block and one group of keys (docs/numerics.md). Lanes are
// rows; scores lie as [key][row].
#pragma once

#include <cstdint>

#include "cpu/tile/elements.hpp"
#include "cpu/tile/numerics.hpp"
#include "cpu/tile/task_memory.hpp"

namespace qattn::cpu {
namespace {

// The part of a task's memory that belongs to one row block.
struct BlockRows {
  const float* factor;
  const float* negated;
  const std::int32_t* queries;
};

// How the old state and the new group come together: both are multiplied by their weight.
template <class Operands>
struct Rescale {
  typename Operands::Lanes::Floats old_weight[Operands::kRowVectors];
  typename Operands::Lanes::Floats new_weight[Operands::kRowVectors];
  bool unchanged;  // every old weight is exactly 1
};

// Calls f(v, first row) for the row vectors of a block.
template <class Operands, class F>
inline void for_row_vectors(F f) {
#pragma GCC unroll 8
  for (int v = 0; v < Operands::kRowVectors; ++v) f(v, v * Operands::Lanes::kLanes);
}

// Rows with a negative score factor: their maximum is the smallest dot product.
template <class Operands>
inline void negate(float* scores, const float* negated, int keys) {
  using Lanes = typename Operands::Lanes;
  for_row_vectors<Operands>([&](int, int row) {
    const auto rows = Lanes::splat(0.5F) < Lanes::load(negated + row);
    for (int key = 0; key < keys; ++key) {
      float* s = scores + key * Operands::kBlockRows + row;
      const auto score = Lanes::load(s);
      // kInteger + x becomes kInteger - x: an integer below 2^24, so the subtraction is exact.
      Lanes::store(s, Lanes::select(rows, Lanes::splat(2 * kInteger) - score, score));
    }
  });
}

// Hides keys [visible keys of the row, keys); none before first_hidden.
template <class Operands>
inline void mask(float* scores, const float* group_keys, int first_hidden, int keys) {
  using Lanes = typename Operands::Lanes;
  for_row_vectors<Operands>([&](int, int row) {
    const auto visible = Lanes::load(group_keys + row);
    for (int key = first_hidden; key < keys; ++key) {
      float* s = scores + key * Operands::kBlockRows + row;
      Lanes::store(s, Lanes::select(Lanes::splat(static_cast<float>(key)) < visible, Lanes::load(s),
                                    Lanes::splat(kHidden)));
    }
  });
}

// Key 0 is a group of its own, with probability 1: the state of the rows that see it starts from
// it, and it is hidden from the rest of its group.
template <class Operands>
inline void start_state(const SoftmaxState& state, float* scores, const float* value,
                        std::int64_t columns) {
  using Lanes = typename Operands::Lanes;
  for_row_vectors<Operands>([&](int, int row) {
    const auto score = Lanes::load(scores + row);
    const auto hidden = Lanes::splat(kHidden);
    const auto zero = Lanes::splat(0.0F);
    const auto visible = hidden < score;
    Lanes::store(state.maximum + row, score);
    Lanes::store(state.sum + row, Lanes::select(visible, Lanes::splat(kUnit), zero));
    for (std::int64_t d = 0; d < columns; ++d) {
      Lanes::store(state.output + d * Operands::kBlockRows + row,
                   Lanes::select(visible, Lanes::splat(value[d]), zero));
    }
    Lanes::store(scores + row, hidden);
  });
}

// Joins a maximum to that of the state and says what both sides are worth against the new one. What
// has no visible key gets the weight -0: x + (-0 * 0) is x for every x, the sign of zero included.
template <class Operands>
inline Rescale<Operands> update(float* state_maximum, const float* maximum, const float* factor) {
  using Lanes = typename Operands::Lanes;
  Rescale<Operands> rescale;
  rescale.unchanged = true;
  for_row_vectors<Operands>([&](int v, int row) {
    const auto c = Lanes::load(factor + row);
    const auto before = Lanes::load(state_maximum + row);
    const auto arriving = Lanes::load(maximum + row);
    const auto after = Lanes::max(before, arriving);
    rescale.old_weight[v] = weight<Lanes>(before - after, c);
    rescale.new_weight[v] = Lanes::select(arriving == Lanes::splat(kHidden), Lanes::splat(-0.0F),
                                          weight<Lanes>(arriving - after, c));
    rescale.unchanged =
        rescale.unchanged && !Lanes::any(rescale.old_weight[v] != Lanes::splat(1.0F));
    Lanes::store(state_maximum + row, after);
  });
  return rescale;
}

// Largest score of every row. Four maxima a row vector, since one waits four cycles for the last.
template <class Operands>
inline void row_maxima(float* maximum, const float* scores, int keys) {
  using Lanes = typename Operands::Lanes;
  constexpr int kMaxima = 4;
  static_assert(Operands::kKeyQuantum % kMaxima == 0);
  typename Lanes::Floats largest[kMaxima][Operands::kRowVectors];
  for (auto& vectors : largest) {
    for_row_vectors<Operands>([&](int v, int) { vectors[v] = Lanes::splat(kHidden); });
  }
  for (int key = 0; key < keys; key += kMaxima, scores += kMaxima * Operands::kBlockRows) {
#pragma GCC unroll 4
    for (int i = 0; i < kMaxima; ++i) {
      for_row_vectors<Operands>([&](int v, int row) {
        largest[i][v] =
            Lanes::max(largest[i][v], Lanes::load(scores + i * Operands::kBlockRows + row));
      });
    }
  }
  for_row_vectors<Operands>([&](int v, int row) {
    Lanes::store(maximum + row, Lanes::max(Lanes::max(largest[0][v], largest[1][v]),
                                           Lanes::max(largest[2][v], largest[3][v])));
  });
}

// What the probabilities of a row vector depend on.
template <class Lanes>
struct QuantizeRows {
  typename Lanes::Floats maximum;
  typename Lanes::Floats factor;
  typename Lanes::Mask words;  // rows with 16-bit probabilities, for Codes::mixed
};

// The code of a score: round(2^(factor * (score - maximum)) * 65280 or * 255) as Elements wants it.
template <class Operands, Codes kCodes>
[[gnu::always_inline]] inline typename Operands::Ints code(
    typename Operands::Lanes::Floats score, const QuantizeRows<typename Operands::Lanes>& rows) {
  using Lanes = typename Operands::Lanes;
  constexpr std::int32_t kBias = kCodes == Codes::bytes ? 0 : Operands::Elements::kWordBias;
  const auto exponent = Lanes::fma(score - rows.maximum, rows.factor, Lanes::splat(kLess));
  const auto split = split_exponent<Lanes>(Lanes::max(exponent, Lanes::splat(kLowestExponent)));
  const auto rounded = [&](auto p, [[maybe_unused]] std::int32_t bias) {
    if constexpr (Operands::Elements::kPlainCodes) {
      return Lanes::to_ints(scale<Lanes>(p, split));
    } else {
      const auto integer = Lanes::splat(kInteger + static_cast<float>(bias));
      return Lanes::as_ints(scale_and_add<Lanes>(p, split, integer));
    }
  };
  typename Lanes::Ints bits;
  if constexpr (kCodes == Codes::bytes) {
    bits = rounded(exp2_times_510<Lanes>(split.fraction), 0);
  } else {
    bits = rounded(exp2_times_130560<Lanes>(split.fraction), kBias);
  }
  if constexpr (kCodes == Codes::mixed) {
    const auto bytes = rounded(exp2_times_510<Lanes>(split.fraction), kBias / 256);
    bits = Lanes::select(rows.words, bits, Lanes::template shift_left<8>(bytes));
  }
  return bits;
}

// Rows for which 8 bits lose too much: their 8-bit probabilities, of which group_sum holds 256
// times the sum, add up to less than four keys like the largest.
template <class Operands>
inline typename Operands::Lanes::Mask needs_words(const std::int32_t* group_sum) {
  using Lanes = typename Operands::Lanes;
  return Lanes::to_floats(Lanes::load(group_sum)) < Lanes::splat(kLeastBytes * 256.0F);
}

// Probabilities of all scores, packed, and their sum per row in units of 1/65280.
template <class Operands, Codes kCodes>
inline void quantize(const BlockRows& rows, const float* group_maximum, const float* scores,
                     int keys, std::int32_t* probabilities, std::int32_t* group_sum) {
  using Lanes = typename Operands::Lanes;
  using Elements = typename Operands::Elements;
  constexpr int kStep = Operands::kStep;
  constexpr int kWakeSteps = kCodes == Codes::bytes ? 32 : 16;
  for_row_vectors<Operands>([&](int v, int row) {
    QuantizeRows<Lanes> constants{
        Lanes::load(group_maximum + row), Lanes::load(rows.factor + row), {}};
    if constexpr (kCodes == Codes::mixed) {
      constants.words = needs_words<Operands>(group_sum + row);
      if constexpr (Operands::kBytesAreWords) {
        if (!Lanes::any(constants.words)) return Operands::widen(probabilities, v, keys / kStep);
      }
    }
    typename Lanes::Ints sums[Elements::operands(kCodes)];
    for (auto& sum : sums) sum = Lanes::splat(0);
    const float* s = scores + row;
    const int steps = keys / kStep;
    for (int step = 0; step < steps; ++step) {
      if (step % kWakeSteps == 0) Operands::keep_awake();
      typename Lanes::Ints codes[kStep];
#pragma GCC unroll 4
      for (int i = 0; i < kStep; ++i, s += Operands::kBlockRows) {
        codes[i] = code<Operands, kCodes>(Lanes::load(s), constants);
      }
      Operands::template put<kCodes>(probabilities, v, step, codes, sums);
    }
    auto sum = Elements::combine(sums);
    if constexpr (kCodes == Codes::bytes) {
      sum = Lanes::template shift_left<8>(sum);
    } else {
      sum = sum - Lanes::splat(Elements::kWordBias * keys);
    }
    Lanes::store(group_sum + row, sum);
  });
}

// Whether some row of the block needs 16-bit probabilities.
template <class Operands>
inline bool any_needs_words(const std::int32_t* group_sum) {
  bool any = false;
  for_row_vectors<Operands>([&](int, int row) {
    any = any || Operands::Lanes::any(needs_words<Operands>(group_sum + row));
  });
  return any;
}

// sum = group_sum * new_weight + sum * old_weight
template <class Operands>
inline void accumulate_sum(
    float* sum, const typename Operands::Lanes::Floats (&arriving)[Operands::kRowVectors],
    const Rescale<Operands>& rescale) {
  using Lanes = typename Operands::Lanes;
  for_row_vectors<Operands>([&](int v, int row) {
    Lanes::store(sum + row, Lanes::fma(arriving[v], rescale.new_weight[v],
                                       Lanes::load(sum + row) * rescale.old_weight[v]));
  });
}

// output = (probabilities * values) * new_weight + output * old_weight
template <class Operands, Codes kCodes, bool kUnchanged>
inline void accumulate_output(float* output, std::int32_t* probabilities,
                              const std::int32_t* values, const std::int32_t* value_starts,
                              int keys, std::int64_t head_dim, std::int32_t* sums,
                              const Rescale<Operands>& rescale) {
  using Lanes = typename Operands::Lanes;
  using Floats = typename Lanes::Floats;
  // 8-bit probabilities count 256 units each: a power of two, so it may join either factor.
  constexpr float kCount = kCodes == Codes::bytes ? 256.0F : 1.0F;
  Floats new_weight[Operands::kRowVectors];
  for_row_vectors<Operands>(
      [&](int v, int) { new_weight[v] = rescale.new_weight[v] * Lanes::splat(kCount); });
  Operands::template products<kCodes>(
      probabilities, values, value_starts, keys / Operands::kStep, head_dim, sums,
      [&](std::int64_t d, int v, typename Lanes::Ints product) __attribute__((always_inline)) {
        float* o = output + d * Operands::kBlockRows + v * Lanes::kLanes;
        Floats before = Lanes::load(o);
        if constexpr (!kUnchanged) before = before * rescale.old_weight[v];
        Lanes::store(o, Lanes::fma(Lanes::to_floats(product), new_weight[v], before));
      });
}

// Joins the state of a later stretch of keys to that of the earlier ones.
template <class Operands>
inline void merge_states(const SoftmaxState& state, const SoftmaxState& later, const float* factor,
                         std::int64_t head_dim) {
  using Lanes = typename Operands::Lanes;
  const auto rescale = update<Operands>(state.maximum, later.maximum, factor);
  typename Lanes::Floats arriving[Operands::kRowVectors];
  for_row_vectors<Operands>([&](int v, int row) { arriving[v] = Lanes::load(later.sum + row); });
  accumulate_sum<Operands>(state.sum, arriving, rescale);
  for (std::int64_t d = 0; d < head_dim; ++d) {
    for_row_vectors<Operands>([&](int v, int row) {
      const std::int64_t at = d * Operands::kBlockRows + row;
      Lanes::store(state.output + at,
                   Lanes::fma(Lanes::load(later.output + at), rescale.new_weight[v],
                              Lanes::load(state.output + at) * rescale.old_weight[v]));
    });
  }
}

}  // namespace
}  // namespace qattn::cpu
