// The tile loop for problems whose keys are one group, on AVX-512 with VNNI: one pass, no state.
//
//   for 16 rows:  scores and maxima; quantize;  for 8 of them: accumulate and store
//
// Same results as Task (docs/numerics.md). What Task prepares for many groups (packed panels, a
// softmax state, transposed outputs) would cost several times what such a problem computes:
//   - keys are used as they lie (plus 128), a dword at a time for 16 rows in the lanes;
//   - in the second product the lanes are columns, so outputs are finished in registers and stored
//     as they lie;
//   - each 16 rows take the keys that they see, in steps of 8 (4 in the second product, for 8
//   rows).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/scratch.hpp"
#include "cpu/tile/elements.hpp"
#include "cpu/tile/numerics.hpp"
#include "cpu/tile/small_memory.hpp"
#include "cpu/tile/store.hpp"
#include "cpu/tile/tile_elements.hpp"
#include "cpu/tile/tile_transpose.hpp"
#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

template <class Lanes>
class SmallTask {
 public:
  /// Whether the work is one of these: one group of keys, and no head whose factor is negative or
  /// not finite.
  static bool takes(const Work& work) {
    const core::Problem& p = *work.problem;
    if (p.seq_k < 1 || p.seq_k > kGroupKeys || p.head_dim > kSmallMaxHeadDim) return false;
    if (work.row_end - work.row_begin > kMaxRows) return false;
    for (std::int64_t i = 0; i < p.group_size(); ++i) {
      const ScoreFactor c = score_factor(p, work.head_kv * p.group_size() + i, work.head_kv);
      if (c.negative || !c.finite) return false;
    }
    return true;
  }

  explicit SmallTask(const Work& work)
      : work_(work),
        problem_(*work.problem),
        memory_(*reinterpret_cast<SmallMemory*>(work.scratch)),
        head_dim_(problem_.head_dim),
        steps_((head_dim_ + 3) / 4),
        group_size_(problem_.group_size()) {}

  void run() {
    pack_small_keys(memory_.keys, problem_.k.row(work_.batch, 0, work_.head_kv),
                    problem_.k.strides.seq, static_cast<int>(problem_.seq_k), head_dim_);
    pack_small_values<Lanes>(memory_, problem_.v.row(work_.batch, 0, work_.head_kv),
                             problem_.v.strides.seq, static_cast<int>(problem_.seq_k), head_dim_);
    if (group_size_ == 1) factors_ = factor(work_.head_kv);
    for (std::int64_t row = work_.row_begin; row < work_.row_end; row += kRows) {
      const std::int64_t left = work_.row_end - row;
      attend(row, left < kRows ? left : kRows);
    }
  }

 private:
  using Floats = typename Lanes::Floats;
  using Ints = typename Lanes::Ints;
  using Sum = typename Lanes::Sum;
  using Elements = TileElements<Lanes>;
  static constexpr std::int64_t kMaxRows = 512;
  static constexpr std::int64_t kRows = kSmallRows;
  static constexpr int kStoreRows = 8;  // with two vectors of columns: 16 sums
  static constexpr int kKeys = kSmallKeys;
  static constexpr int kColumns = kSmallColumns;

  float factor(std::int64_t head) const {
    return score_factor(problem_, head, work_.head_kv).exponent;
  }
  std::int64_t query(std::int64_t row) const { return group_size_ == 1 ? row : row / group_size_; }
  std::int64_t head(std::int64_t row) const {
    return group_size_ == 1 ? work_.head_kv : work_.head_kv * group_size_ + row % group_size_;
  }

  // Packs the queries and returns what their score sums start from: kIntegerBits, less what the
  // offset of the keys adds.
  Ints pack_queries(std::int64_t row, std::int64_t count) {
    __m512i square[kRows];
    RowWalk<const std::int8_t> rows(problem_.q, work_, group_size_, row);
    const __mmask64 columns = below(head_dim_);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      square[i] =
          i < count ? _mm512_maskz_loadu_epi8(columns, rows.next()) : _mm512_setzero_si512();
    }
    transpose_dwords(square);
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum = _mm512_setzero_si512();
    for (int i = 0; i < kRows; ++i) {
      if (i >= steps_) break;
      _mm512_store_si512(memory_.queries + i * kRows, square[i]);
      sum = _mm512_dpbusd_epi32(sum, ones, square[i]);
    }
    return Ints(_mm512_sub_epi32(_mm512_set1_epi32(kIntegerBits), _mm512_slli_epi32(sum, 7)));
  }

  // Scores of keys [0, keys) and, for each row, the largest of its visible keys but key 0.
  template <int kSteps>  // of every query and key; 0: any
  Floats scores(Ints start, Ints visible, int all_see, int keys) {
    const std::int64_t steps = kSteps == 0 ? steps_ : kSteps;
    Floats maxima[2] = {Lanes::splat(kHidden), Lanes::splat(kHidden)};
    for (int key = 0; key < keys; key += kKeys) {
      Sum sums[kKeys];
#pragma GCC unroll 8
      for (auto& sum : sums) sum = Lanes::hold(start);
      const std::uint8_t* from = memory_.keys + key * 4 * steps;
      const auto add = [&](std::int64_t step) __attribute__((always_inline)) {
        const Ints query = Lanes::load(memory_.queries + step * kRows);
#pragma GCC unroll 8
        for (int i = 0; i < kKeys; ++i) {
          const auto key_quad = load_bytes<std::int32_t>(from + (i * steps + step) * 4);
          sums[i] =
              Lanes::hold(Lanes::dot_quads(Lanes::value(sums[i]), Lanes::splat(key_quad), query));
        }
      };
      if constexpr (kSteps == 0) {
        for (std::int64_t step = 0; step < steps; ++step) add(step);
      } else {
#pragma GCC unroll 16
        for (int step = 0; step < kSteps; ++step) add(step);
      }
      const bool hidden = key == 0 || key + kKeys > all_see;  // some row does not see some key
#pragma GCC unroll 8
      for (int i = 0; i < kKeys; ++i) {
        const Floats score = Lanes::as_floats(Lanes::value(sums[i]));
        Lanes::store(memory_.scores + (key + i) * kRows, score);
        if (!hidden) maxima[i % 2] = Lanes::max(maxima[i % 2], score);
      }
      if (!hidden) continue;
#pragma GCC unroll 8
      for (int i = 0; i < kKeys; ++i) {
        const Floats score = Lanes::as_floats(Lanes::value(sums[i]));
        const __mmask16 seen = key + i == 0 ? __mmask16{0} : sees(visible, key + i);
        maxima[i % 2] = _mm512_mask_max_ps(maxima[i % 2], seen, maxima[i % 2], score);
      }
    }
    return Lanes::max(maxima[0], maxima[1]);
  }

  static __mmask16 sees(Ints visible, int key) {
    return _mm512_cmpgt_epi32_mask(visible, _mm512_set1_epi32(key));
  }

  // The code of a score, a plain integer.
  template <Codes kCodes>
  [[gnu::always_inline]] Ints code(Floats score, Floats maximum, typename Lanes::Mask words) const {
    const auto x = Lanes::fma(score - maximum, factors_, Lanes::splat(kLess));
    const auto split = split_exponent<Lanes>(Lanes::max(x, Lanes::splat(kLowestExponent)));
    const auto byte = [&] {
      return Lanes::to_ints(scale<Lanes>(exp2_times_510<Lanes>(split.fraction), split));
    };
    if constexpr (kCodes == Codes::bytes) return byte();
    const auto word = Lanes::to_ints(scale<Lanes>(exp2_times_130560<Lanes>(split.fraction), split));
    if constexpr (kCodes == Codes::words) return word;
    return Lanes::select(words, word, Lanes::template shift_left<8>(byte()));
  }

  // Probabilities of the keys, but key 0, and their sum in units of 1/65280.
  template <Codes kCodes>
  Ints quantize(Floats maximum, Ints visible, int all_see, int keys, typename Lanes::Mask words) {
    constexpr int kOperands = Elements::operands(kCodes);
    Ints sums[kOperands];
    for (auto& sum : sums) sum = Lanes::splat(0);
    const auto put = [&](int quad, const Ints(&codes)[4]) __attribute__((always_inline)) {
      Ints packed[kOperands];
      Elements::template pack<kCodes>(packed, codes);
      for (int i = 0; i < kOperands; ++i) {
        sums[i] = Lanes::dot_quads(sums[i], packed[i], Lanes::splat(0x01010101));
        Lanes::store((i + 1 == kOperands ? memory_.low : memory_.high) + quad * kRows, packed[i]);
      }
    };
    const auto codes_of = [&](int key, Ints(&codes)[4]) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        codes[i] = code<kCodes>(Lanes::load(memory_.scores + (key + i) * kRows), maximum, words);
      }
    };
    Ints codes[4];
    int key = 0;
    // Some rows do not see a key of these: all quads from the last that all see, and key 0.
    const auto put_masked = [&] {
      codes_of(key, codes);
      for (int i = 0; i < 4; ++i) {
        const __mmask16 seen = key + i == 0 ? __mmask16{0} : sees(visible, key + i);
        codes[i] = Ints(_mm512_maskz_mov_epi32(seen, codes[i]));
      }
      put(key / 4, codes);
    };
    put_masked();
    for (key = 4; key + 4 <= all_see; key += 4) {
      codes_of(key, codes);
      put(key / 4, codes);
    }
    for (; key < keys; key += 4) put_masked();
    if constexpr (kCodes == Codes::bytes) return Lanes::template shift_left<8>(sums[0]);
    return Elements::combine(sums);
  }

  // Keys that the rows see; lanes without a row repeat the last.
  Ints visible_keys(std::int64_t row, std::int64_t count) {
    const std::int64_t first = query(row);
    const std::int64_t last = query(row + count - 1);
    const auto least = static_cast<std::int32_t>(problem_.visible_keys(first));
    const auto most = static_cast<std::int32_t>(problem_.visible_keys(last));
    if (least == most) return Lanes::splat(least);
    if (group_size_ == 1 && least > 0) {  // one key more for every row, as far as there are keys
      const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      return Ints(_mm512_min_epi32(_mm512_add_epi32(_mm512_set1_epi32(least), lane),
                                   _mm512_set1_epi32(most)));
    }
    for (std::int64_t i = 0; i < kRows; ++i) {
      const std::int64_t seen = problem_.visible_keys(query(row + (i < count ? i : count - 1)));
      memory_.visible[i] = static_cast<std::int32_t>(seen);
    }
    return Lanes::load(memory_.visible);
  }

  void attend(std::int64_t row, std::int64_t count) {
    const Ints visible = visible_keys(row, count);
    Lanes::store(memory_.visible, visible);
    const int keys = memory_.visible[kRows - 1];
    const int all_see = memory_.visible[0];
    if (group_size_ != 1) {
      for (std::int64_t i = 0; i < kRows; ++i) {
        memory_.inverse[i] = factor(head(row + (i < count ? i : count - 1)));
      }
      factors_ = Lanes::load(memory_.inverse);
    }
    const Ints start = pack_queries(row, count);
    const Floats maximum = steps_ == 8 ? scores<8>(start, visible, all_see, keys)
                                       : scores<0>(start, visible, all_see, keys);
    const Floats first = Lanes::load(memory_.scores);
    const Floats after = Lanes::max(first, maximum);
    const auto old_weight = weight<Lanes>(first - after, factors_);
    // Without a visible key besides key 0: x + (-0 * 0) is x.
    const auto new_weight = Lanes::select(maximum == Lanes::splat(kHidden), Lanes::splat(-0.0F),
                                          weight<Lanes>(maximum - after, factors_));
    const typename Lanes::Mask none(false);
    Ints group_sum;
    bool bytes = problem_.precision == Precision::fast;
    if (bytes) {
      group_sum = quantize<Codes::bytes>(maximum, visible, all_see, keys, none);
      const auto words = Lanes::to_floats(group_sum) < Lanes::splat(kLeastBytes * 256.0F);
      if (Lanes::any(words)) {
        bytes = false;
        group_sum = quantize<Codes::mixed>(maximum, visible, all_see, keys, words);
      }
    } else {
      group_sum = quantize<Codes::words>(maximum, visible, all_see, keys, none);
    }
    const auto sum =
        Lanes::fma(Lanes::to_floats(group_sum), new_weight, Lanes::splat(kUnit) * old_weight);
    Lanes::store(memory_.old_weight, old_weight);
    // 8-bit probabilities count 256 units each: a power of two, so it may join either factor.
    Lanes::store(memory_.new_weight, bytes ? new_weight * Lanes::splat(256.0F) : new_weight);
    Lanes::store(memory_.inverse, Lanes::splat(1.0F) / sum);
    for (std::int64_t i = 0; i < count; i += kStoreRows) {
      if (bytes) {
        store<false>(row + i, static_cast<int>(i), count - i);
      } else {
        store<true>(row + i, static_cast<int>(i), count - i);
      }
    }
    if (problem_.lse != nullptr) store_lse(row, count, after, sum);
  }

  // Second product, for kStoreRows rows from lane `lane` on, of which `count` exist.
  template <bool kWords>
  void store(std::int64_t row, int lane, std::int64_t count) {
    const int quads = (memory_.visible[lane + kStoreRows - 1] + 3) / 4;
    const Floats v_scale = Lanes::splat(problem_.v.scale[work_.head_kv]);
    for (std::int64_t d = 0; d < head_dim_; d += kColumns) {
      const std::int8_t* values = memory_.values + d * kGroupKeys;
      Sum sums[kStoreRows][2];
#pragma GCC unroll 8
      for (auto& sum : sums) sum[0] = sum[1] = Lanes::hold(Lanes::splat(0));
      if constexpr (kWords) {
        add_products(sums, memory_.high + lane, values, quads);
#pragma GCC unroll 8
        for (auto& sum : sums) {
          sum[0] <<= 8;
          sum[1] <<= 8;
        }
      }
      add_products(sums, memory_.low + lane, values, quads);
      const Floats first[2] = {Lanes::load(memory_.first_value + d),
                               Lanes::load(memory_.first_value + d + 16)};
      const __mmask16 columns[2] = {lanes_below(head_dim_ - d), lanes_below(head_dim_ - d - 16)};
      RowWalk<float> rows(problem_.out, work_, group_size_, row);
#pragma GCC unroll 8
      for (int i = 0; i < kStoreRows; ++i) {
        if (i >= count) break;
        float* to = rows.next() + d;
        const bool empty = memory_.visible[lane + i] == 0;
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const Floats output =
              Lanes::fma(Lanes::to_floats(Lanes::value(sums[i][half])),
                         Lanes::splat(memory_.new_weight[lane + i]),
                         first[half] * Lanes::splat(memory_.old_weight[lane + i]));
          const Floats scaled = (output * Lanes::splat(memory_.inverse[lane + i])) * v_scale;
          _mm512_mask_storeu_ps(to + 16 * half, columns[half], empty ? Lanes::splat(0.0F) : scaled);
        }
      }
    }
  }

  // sums[i][half] += probabilities of row i by 16 columns of values.
  [[gnu::always_inline]] static void add_products(Sum (&sums)[kStoreRows][2],
                                                  const std::int32_t* probabilities,
                                                  const std::int8_t* values, int quads) {
    for (int quad = 0; quad < quads; ++quad, probabilities += kRows, values += 4 * kColumns) {
      const Ints v[2] = {_mm512_load_si512(values), _mm512_load_si512(values + 64)};
#pragma GCC unroll 8
      for (int i = 0; i < kStoreRows; ++i) {
        const Ints p = Lanes::splat(probabilities[i]);
        sums[i][0] = Lanes::hold(Lanes::dot_quads(Lanes::value(sums[i][0]), p, v[0]));
        sums[i][1] = Lanes::hold(Lanes::dot_quads(Lanes::value(sums[i][1]), p, v[1]));
      }
    }
  }

  void store_lse(std::int64_t row, std::int64_t count, Floats maximum, Floats sum) {
    alignas(kScratchAlignment) float maxima[kRows];
    alignas(kScratchAlignment) float totals[kRows];
    Lanes::store(maxima, maximum);
    Lanes::store(totals, sum);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t h = head(row + i);
      float* to = problem_.lse_row(work_.batch, h) + query(row + i);
      *to = memory_.visible[i] == 0
                ? -__builtin_inff()
                : log_sum_exp(score_factor(problem_, h, work_.head_kv), maxima[i], totals[i]);
    }
  }

  const Work& work_;
  const core::Problem& problem_;
  SmallMemory& memory_;
  const std::int64_t head_dim_;
  const std::int64_t steps_;  // dwords of a query or key
  const std::int64_t group_size_;
  Floats factors_ = Lanes::splat(0.0F);
};

}  // namespace
}  // namespace qattn::cpu
