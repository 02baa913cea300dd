// The tile loop for problems whose keys are one group, on AVX-512 with VNNI: one pass, no state.
//
//   for 16 rows:  quantize, beside scores and maxima of the next 16;  for 8: accumulate and store
//
// Same results as Task (docs/numerics.md). What Task prepares for many groups (packed panels, a
// softmax state, transposed outputs) would cost several times what such a problem computes:
//   - keys are used as they lie (plus 128), a dword at a time for 16 rows in the lanes;
//   - in the second product the lanes are columns, so outputs are finished in registers and stored
//     as they lie;
//   - each 16 rows take the keys that they see, in steps of 8 (4 in the second product, for 8
//     rows); the last rows, if at most 8, take vectors of half the size;
//   - where few rows of a block need 16-bit probabilities at `fast`, they alone are refined.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "cpu/scratch.hpp"
#include "cpu/tile/elements.hpp"
#include "cpu/tile/numerics.hpp"
#include "cpu/tile/small_codes.hpp"
#include "cpu/tile/small_lanes.hpp"
#include "cpu/tile/small_memory.hpp"
#include "cpu/tile/small_refine.hpp"
#include "cpu/tile/small_scores.hpp"
#include "cpu/tile/small_store.hpp"
#include "cpu/tile/store.hpp"
#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

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
        group_size_(problem_.group_size()) {}

  void run() {
    pack_small_keys(memory_.keys, problem_.k.row(work_.batch, 0, work_.head_kv),
                    problem_.k.strides.seq, static_cast<int>(problem_.seq_k), head_dim_);
    pack_small_values<SmallLanes16>(memory_, problem_.v.row(work_.batch, 0, work_.head_kv),
                                    problem_.v.strides.seq, static_cast<int>(problem_.seq_k),
                                    head_dim_);
    if (group_size_ == 1) {
      const auto factors = SmallLanes16::splat(factor(work_.head_kv));
      for (SmallBlock& block : memory_.blocks) SmallLanes16::store(block.factors, factors);
    }
    run_and_score(Idle{}, work_.row_begin);
    for (std::int64_t row = work_.row_begin; row < work_.row_end; row += kSmallRows) {
      if (is_half(row)) {
        attend<SmallLanes8>(row);
      } else {
        attend<SmallLanes16>(row);
      }
    }
  }

 private:
  static constexpr std::int64_t kMaxRows = 512;
  static constexpr int kStoreRows = 8;  // with two vectors of columns: 16 sums
  // Visible keys with which bytes cannot add up to kLeastBytes: four of 255 besides key 0.
  static constexpr int kMaxKeysOfWords = 5;

  float factor(std::int64_t head) const {
    return score_factor(problem_, head, work_.head_kv).exponent;
  }
  std::int64_t query(std::int64_t row) const { return group_size_ == 1 ? row : row / group_size_; }
  std::int64_t head(std::int64_t row) const {
    return group_size_ == 1 ? work_.head_kv : work_.head_kv * group_size_ + row % group_size_;
  }

  bool is_half(std::int64_t row) const { return work_.row_end - row <= SmallLanes8::kLanes; }
  int row_count(std::int64_t row) const {
    return static_cast<int>(std::min<std::int64_t>(work_.row_end - row, kSmallRows));
  }
  // Two take turns: the next one's scores are computed while this one's are still needed.
  SmallBlock& block_of(std::int64_t row) const {
    return memory_.blocks[(row - work_.row_begin) / kSmallRows % 2];
  }

  void prepare_block(std::int64_t row) const {
    SmallBlock& block = block_of(row);
    const int count = row_count(row);
    prepare_visible(block, row, count);
    for (int i = 0; i < kSmallRows && group_size_ != 1; ++i) {
      block.factors[i] = factor(head(row + (i < count ? i : count - 1)));
    }
    pack_small_queries(block, RowWalk<const std::int8_t>(problem_.q, work_, group_size_, row),
                       count, head_dim_);
  }

  void prepare_visible(SmallBlock& block, std::int64_t row, int count) const {
    const auto least = static_cast<std::int32_t>(problem_.visible_keys(query(row)));
    const auto most = static_cast<std::int32_t>(problem_.visible_keys(query(row + count - 1)));
    if (least == most || (group_size_ == 1 && least > 0)) {
      // One key more for every row, as far as there are keys.
      const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      _mm512_store_si512(block.visible,
                         _mm512_min_epi32(_mm512_add_epi32(_mm512_set1_epi32(least), lane),
                                          _mm512_set1_epi32(most)));
      return;
    }
    for (int i = 0; i < kSmallRows; ++i) {
      const std::int64_t seen = problem_.visible_keys(query(row + (i < count ? i : count - 1)));
      block.visible[i] = static_cast<std::int32_t>(seen);
    }
  }

  // In place of codes or scores where there are none.
  struct Idle {
    using Ints = int;
    static int all_see() { return 0; }
    static int visible_keys() { return 0; }
    template <bool kMasked>
    static void part(int, int) {}
    template <class Beside>
    [[gnu::always_inline]] static void step(int, const Beside& beside) {
#pragma GCC unroll 8
      for (int i = 0; i < kSmallKeys; ++i) beside(i);
    }
    static void finish() {}
    static Ints sum() { return 0; }
  };

  // Probabilities of one block, whose sums are returned, and scores of the next, which sees as many
  // keys or more. On Zen 4 scores keep two pipes busy with products, and probabilities two others
  // with additions and conversions: (2, 72, 4, 32) takes 7700 cycles a head at fast and 8530 at
  // high, one after the other 7920 and 8650.
  template <class ThisCodes, class NextScores>
  static typename ThisCodes::Ints alternate(ThisCodes codes, NextScores scores) {
    int key = 0;
    const auto both = [&](auto masked) __attribute__((always_inline)) {
      scores.step(
          key, [&](int i) __attribute__((always_inline)) {
            codes.template part<decltype(masked)::value>(key, i);
          });
    };
    for (; key < codes.visible_keys(); key += kSmallKeys) {
      if (key == 0 || key + kSmallKeys > codes.all_see()) {
        both(std::true_type{});
      } else {
        both(std::false_type{});
      }
    }
    for (; key < scores.visible_keys(); key += kSmallKeys) scores.step(key, [](int) {});
    scores.finish();
    return codes.sum();
  }

  // A function of its own: together with its caller, GCC keeps sums of the loops in memory (3 %).
  template <class Lanes, class ThisCodes>
  [[gnu::noinline]] typename ThisCodes::Ints run_beside(const ThisCodes& codes,
                                                        SmallBlock& block) const {
    switch ((head_dim_ + 3) / 4) {
      case 8:
        return alternate(codes, SmallScores<Lanes, 8>(block, memory_.keys, head_dim_));
      case 16:
        return alternate(codes, SmallScores<Lanes, 16>(block, memory_.keys, head_dim_));
      default:
        return alternate(codes, SmallScores<Lanes, 0>(block, memory_.keys, head_dim_));
    }
  }

  // Runs `codes`, and the scores of the block of `next`, if there is one.
  template <class ThisCodes>
  typename ThisCodes::Ints run_and_score(const ThisCodes& codes, std::int64_t next) const {
    if (next >= work_.row_end) return alternate(codes, Idle{});
    prepare_block(next);
    if (is_half(next)) {
      return run_beside<SmallLanes8>(codes, block_of(next));
    } else {
      return run_beside<SmallLanes16>(codes, block_of(next));
    }
  }

  // The rest of a block whose scores are there, and the scores of the next.
  template <class Lanes>
  void attend(std::int64_t row) {
    using Floats = typename Lanes::Floats;
    const SmallBlock& block = block_of(row);
    const Floats group_sum = Lanes::to_floats(quantize<Lanes>(block, row));
    const Floats maximum = Lanes::load(block.maximum);
    const Floats factors = Lanes::load(block.factors);
    const Floats first = Lanes::load(block.scores);
    const Floats after = Lanes::max(first, maximum);
    // The larger of the two weighs exactly 1.
    const Floats one = Lanes::splat(1.0F);
    const Floats less = weight<Lanes>(xsimd::min(first, maximum) - after, factors);
    const Floats old_weight = Lanes::select(first < maximum, less, one);
    // Without a visible key besides key 0: x + (-0 * 0) is x.
    const Floats not_first =
        Lanes::select(maximum == Lanes::splat(kHidden), Lanes::splat(-0.0F), less);
    const Floats new_weight = Lanes::select(maximum < first, not_first, one);
    const Floats sum = Lanes::fma(group_sum, new_weight, Lanes::splat(kUnit) * old_weight);
    Lanes::store(memory_.old_weight, old_weight);
    Lanes::store(memory_.new_weight, new_weight);
    // 8-bit probabilities count 256 units each: a power of two, so it may join either factor.
    Lanes::store(memory_.byte_weight, new_weight * Lanes::splat(256.0F));
    Lanes::store(memory_.inverse, Lanes::splat(1.0F) / sum);
    store(block, row);
    if (problem_.lse != nullptr) store_lse<Lanes>(block, row, after, sum);
  }

  // Returns the sum of the probabilities. Leaves in words_ whether all of the block have 16 bits,
  // and in sets_ how many sets of rows have them besides.
  template <class Lanes>
  typename Lanes::Ints quantize(const SmallBlock& block, std::int64_t row) {
    const int count = row_count(row);
    sets_ = 0;
    words_ = problem_.precision != Precision::fast || block.visible[count - 1] <= kMaxKeysOfWords;
    if (words_) {
      return run_and_score(SmallCodes<Lanes, Codes::words>(block, memory_), row + kSmallRows);
    }
    const auto bytes =
        run_and_score(SmallCodes<Lanes, Codes::bytes>(block, memory_), row + kSmallRows);
    const auto sum = Lanes::to_floats(bytes);
    // Nothing is lost where a row sees no key of the group.
    const auto small = sum < Lanes::splat(kLeastBytes * 256.0F) && Lanes::splat(0.0F) < sum;
    const unsigned rows = Lanes::bits(small) & ((1U << count) - 1);
    if (rows == 0) return bytes;
    const int sets = (std::popcount(rows) + kSetRows - 1) / kSetRows;
    words_ = sets > Lanes::kLanes / 8;
    if (!words_) return Lanes::narrow(refine(block, rows, Lanes::widen(bytes)));
    return alternate(SmallCodes<Lanes, Codes::mixed>(block, memory_, small), Idle{});
  }

  __m512i refine(const SmallBlock& block, unsigned rows, __m512i sums) {
    for (; rows != 0; ++sets_) {
      unsigned left = rows;
      for (int i = 0; i < kSetRows; ++i) left &= left - 1;
      const auto set = static_cast<__mmask16>(rows ^ left);
      sums = SmallRefinement(block, memory_.sets[sets_], set).run(sums);
      rows = left;
    }
    return sums;
  }

  void store(const SmallBlock& block, std::int64_t row) const {
    const int count = row_count(row);
    float* to[kSmallRows];
    RowWalk<float> rows(problem_.out, work_, group_size_, row);
    for (int i = 0; i < count; ++i) to[i] = rows.next();
    const float v_scale = problem_.v.scale[work_.head_kv];
    const SmallStore<kStoreRows, kSmallRows> all(memory_, block, head_dim_, v_scale);
    for (int lane = 0; lane < count; lane += kStoreRows) {
      const auto lane_of = [lane](int i) { return lane + i; };
      if (words_) {
        all.template run<true>(memory_.high + lane, memory_.low + lane, memory_.new_weight,
                               to + lane, count - lane, lane_of);
      } else {
        all.template run<false>(memory_.high + lane, nullptr, memory_.byte_weight, to + lane,
                                count - lane, lane_of);
      }
    }
    for (int i = 0; i < sets_; ++i) {
      const SmallSet& set = memory_.sets[i];
      if (set.count > 2) {
        store_set<kSetRows>(block, set, to);
      } else {
        store_set<2>(block, set, to);
      }
    }
  }

  template <int kRows>
  void store_set(const SmallBlock& block, const SmallSet& set, float* const* to) const {
    float* places[kRows];
    for (int i = 0; i < kRows; ++i) places[i] = to[set.lanes[i]];
    SmallStore<kRows, kSetRows>(memory_, block, head_dim_, problem_.v.scale[work_.head_kv])
        .template run<true>(set.high, set.low, memory_.new_weight, places, set.count,
                            [&set](int i) { return set.lanes[i]; });
  }

  template <class Lanes>
  void store_lse(const SmallBlock& block, std::int64_t row, typename Lanes::Floats maximum,
                 typename Lanes::Floats sum) const {
    alignas(kScratchAlignment) float maxima[kSmallRows];
    alignas(kScratchAlignment) float totals[kSmallRows];
    Lanes::store(maxima, maximum);
    Lanes::store(totals, sum);
    for (int i = 0; i < row_count(row); ++i) {
      const std::int64_t h = head(row + i);
      float* to = problem_.lse_row(work_.batch, h) + query(row + i);
      *to = block.visible[i] == 0
                ? -__builtin_inff()
                : log_sum_exp(score_factor(problem_, h, work_.head_kv), maxima[i], totals[i]);
    }
  }

  const Work& work_;
  const core::Problem& problem_;
  SmallMemory& memory_;
  const std::int64_t head_dim_;
  const std::int64_t group_size_;
  bool words_ = false;
  int sets_ = 0;
};

}  // namespace
}  // namespace qattn::cpu
