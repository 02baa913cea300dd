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
//     rows); the last rows, if at most 8, take vectors of half the size;
//   - where few rows of a block need 16-bit probabilities at `fast`, they alone are refined.
#pragma once

#include <bit>
#include <cstdint>

#include "cpu/scratch.hpp"
#include "cpu/tile/elements.hpp"
#include "cpu/tile/numerics.hpp"
#include "cpu/tile/small_lanes.hpp"
#include "cpu/tile/small_memory.hpp"
#include "cpu/tile/small_refine.hpp"
#include "cpu/tile/small_softmax.hpp"
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
      SmallLanes16::store(memory_.factors, SmallLanes16::splat(factor(work_.head_kv)));
    }
    for (std::int64_t row = work_.row_begin; row < work_.row_end; row += kSmallRows) {
      const std::int64_t left = work_.row_end - row;
      if (left <= SmallLanes8::kLanes) {
        attend<SmallLanes8>(row, static_cast<int>(left));
      } else {
        attend<SmallLanes16>(row, static_cast<int>(left < kSmallRows ? left : kSmallRows));
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

  // Keys that the rows see, and their factors; lanes without a row repeat the last.
  void prepare_rows(std::int64_t row, int count) {
    const auto least = static_cast<std::int32_t>(problem_.visible_keys(query(row)));
    const auto most = static_cast<std::int32_t>(problem_.visible_keys(query(row + count - 1)));
    if (least == most || (group_size_ == 1 && least > 0)) {
      // One key more for every row, as far as there are keys.
      const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      _mm512_store_si512(memory_.visible,
                         _mm512_min_epi32(_mm512_add_epi32(_mm512_set1_epi32(least), lane),
                                          _mm512_set1_epi32(most)));
    } else {
      for (int i = 0; i < kSmallRows; ++i) {
        const std::int64_t seen = problem_.visible_keys(query(row + (i < count ? i : count - 1)));
        memory_.visible[i] = static_cast<std::int32_t>(seen);
      }
    }
    if (group_size_ == 1) return;
    for (int i = 0; i < kSmallRows; ++i) {
      memory_.factors[i] = factor(head(row + (i < count ? i : count - 1)));
    }
  }

  template <class Lanes>
  void attend(std::int64_t row, int count) {
    using Floats = typename Lanes::Floats;
    prepare_rows(row, count);
    pack_small_queries(memory_, RowWalk<const std::int8_t>(problem_.q, work_, group_size_, row),
                       count, head_dim_);
    SmallSoftmax<Lanes> softmax(memory_);
    const std::int64_t steps = (head_dim_ + 3) / 4;
    const Floats maximum =
        steps == 8 ? softmax.template scores<8>(steps) : softmax.template scores<0>(steps);
    Lanes::store(memory_.maximum, maximum);
    quantize(softmax, maximum, count);

    const auto factors = Lanes::load(memory_.factors);
    const Floats first = Lanes::load(memory_.scores);
    const Floats after = Lanes::max(first, maximum);
    const Floats old_weight = weight<Lanes>(first - after, factors);
    // Without a visible key besides key 0: x + (-0 * 0) is x.
    const Floats new_weight = Lanes::select(maximum == Lanes::splat(kHidden), Lanes::splat(-0.0F),
                                            weight<Lanes>(maximum - after, factors));
    const Floats sum = Lanes::fma(Lanes::to_floats(Lanes::load(memory_.group_sum)), new_weight,
                                  Lanes::splat(kUnit) * old_weight);
    Lanes::store(memory_.old_weight, old_weight);
    Lanes::store(memory_.new_weight, new_weight);
    // 8-bit probabilities count 256 units each: a power of two, so it may join either factor.
    Lanes::store(memory_.byte_weight, new_weight * Lanes::splat(256.0F));
    Lanes::store(memory_.inverse, Lanes::splat(1.0F) / sum);
    store(row, count);
    if (problem_.lse != nullptr) store_lse<Lanes>(row, count, after, sum);
  }

  // Probabilities, and group_sum. Leaves in words_ whether those of the block have 16 bits, and in
  // sets_ how many sets of rows have them besides.
  template <class Lanes>
  void quantize(SmallSoftmax<Lanes>& softmax, typename Lanes::Floats maximum, int count) {
    sets_ = 0;
    words_ = problem_.precision != Precision::fast || memory_.visible[count - 1] <= kMaxKeysOfWords;
    if (words_) {
      Lanes::store(memory_.group_sum, softmax.template quantize<Codes::words>(maximum));
      return;
    }
    const auto bytes = softmax.template quantize<Codes::bytes>(maximum);
    Lanes::store(memory_.group_sum, bytes);
    const auto sum = Lanes::to_floats(bytes);
    // Nothing is lost where a row sees no key of the group.
    const auto small = sum < Lanes::splat(kLeastBytes * 256.0F) && Lanes::splat(0.0F) < sum;
    unsigned rows = Lanes::bits(small) & ((1U << count) - 1);
    if (rows == 0) return;
    const int sets = (std::popcount(rows) + kSetRows - 1) / kSetRows;
    words_ = sets > Lanes::kLanes / 8;
    if (words_) {
      Lanes::store(memory_.group_sum, softmax.template quantize<Codes::mixed>(maximum, small));
      return;
    }
    for (; sets_ < sets; ++sets_) {
      SmallSet& set = memory_.sets[sets_];
      for (int& lane : set.lanes) {
        lane = std::countr_zero(rows);
        if ((rows & (rows - 1)) != 0) rows &= rows - 1;  // the last row stays
      }
      SmallRefinement(memory_, set).run();
    }
  }

  void store(std::int64_t row, int count) {
    float* to[kSmallRows];
    RowWalk<float> rows(problem_.out, work_, group_size_, row);
    for (int i = 0; i < count; ++i) to[i] = rows.next();
    const float v_scale = problem_.v.scale[work_.head_kv];
    const SmallStore<kStoreRows, kSmallRows> block(memory_, head_dim_, v_scale);
    for (int lane = 0; lane < count; lane += kStoreRows) {
      const auto lane_of = [lane](int i) { return lane + i; };
      if (words_) {
        block.template run<true>(memory_.high + lane, memory_.low + lane, memory_.new_weight,
                                 to + lane, count - lane, lane_of);
      } else {
        block.template run<false>(memory_.high + lane, nullptr, memory_.byte_weight, to + lane,
                                  count - lane, lane_of);
      }
    }
    const SmallStore<kSetRows, kSetRows> few(memory_, head_dim_, v_scale);
    for (int i = 0; i < sets_; ++i) {
      const SmallSet& set = memory_.sets[i];
      float* places[kSetRows];
      for (int j = 0; j < kSetRows; ++j) places[j] = to[set.lanes[j]];
      few.template run<true>(set.high, set.low, memory_.new_weight, places, kSetRows,
                             [&set](int j) { return set.lanes[j]; });
    }
  }

  template <class Lanes>
  void store_lse(std::int64_t row, int count, typename Lanes::Floats maximum,
                 typename Lanes::Floats sum) {
    alignas(kScratchAlignment) float maxima[kSmallRows];
    alignas(kScratchAlignment) float totals[kSmallRows];
    Lanes::store(maxima, maximum);
    Lanes::store(totals, sum);
    for (int i = 0; i < count; ++i) {
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
  const std::int64_t group_size_;
  bool words_ = false;
  int sets_ = 0;
};

}  // namespace
}  // namespace qattn::cpu
