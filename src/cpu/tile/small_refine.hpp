// 16-bit probabilities for a few rows of a block, where most make do with 8 bits.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "cpu/tile/numerics.hpp"
#include "cpu/tile/small_lanes.hpp"
#include "cpu/tile/small_memory.hpp"

namespace qattn::cpu {
namespace {

// Four rows by four keys in the lanes: narrowed to bytes, they are the operand of the second
// product. Two and a half shuffles bring them there, and the exponentials of twelve other rows are
// saved.
class SmallRefinement {
 public:
  using Lanes = SmallLanes16;
  using Floats = Lanes::Floats;
  using Ints = Lanes::Ints;

  // `rows`: the lanes of the set, at most kSetRows.
  SmallRefinement(const SmallBlock& block, SmallSet& set, __mmask16 rows)
      : block_(block), set_(set), rows_(rows) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i list = _mm512_mask_compress_epi32(_mm512_set1_epi32(last_lane()), rows, lane);
    _mm512_store_si512(set.lanes, list);
    set.count = std::popcount(static_cast<unsigned>(rows));
    lanes_ = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), list);
  }

  /// Returns `sums` with those of the set in their lanes, in units of 1/65280.
  __m512i run(__m512i sums) {
    const Floats minus_maximum = -of_rows(block_.maximum);
    const Floats factors = of_rows(block_.factors);
    const Ints key = Ints(_mm512_set4_epi32(3, 2, 1, 0));
    const Ints visible = Ints(_mm512_permutexvar_epi32(lanes_, Lanes::load(block_.visible))) - key;
    // Lanes of a pair of keys: even ones from the first, odd ones from the second.
    const __m512i pair = _mm512_add_epi32(lanes_, _mm512_set4_epi32(16, 0, 16, 0));
    Ints sum = Lanes::splat(0);
    const auto quantize = [&](int quad, auto masked) __attribute__((always_inline)) {
      const float* scores = block_.scores + 4 * quad * kSmallRows;
      const auto two_keys = [&](int i) {
        return _mm512_permutex2var_ps(Lanes::load(scores + i * kSmallRows), pair,
                                      Lanes::load(scores + (i + 1) * kSmallRows));
      };
      const Floats score = _mm512_mask_blend_ps(0xCCCC, two_keys(0), two_keys(2));
      const Floats x = Lanes::fma(score + minus_maximum, factors, Lanes::splat(kLess));
      const auto split =
          split_exponent<Lanes>(Lanes::max_negative(x, Lanes::splat(kLowestExponent)));
      __m512i code = Lanes::to_ints(scale<Lanes>(exp2_times_130560<Lanes>(split.fraction), split));
      if constexpr (decltype(masked)::value) {
        __mmask16 seen = _mm512_cmpgt_epi32_mask(visible, Lanes::splat(4 * quad));
        if (quad == 0) seen &= 0xEEEE;  // key 0 is a group of its own
        code = _mm512_maskz_mov_epi32(seen, code);
      }
      sum += Ints(code);
      store(set_.high + quad * kSetRows, _mm512_srli_epi32(code, 8));
      store(set_.low + quad * kSetRows, code);
    };
    const int all_see = block_.visible[set_.lanes[0]];
    const int end = block_.visible[last_lane()];
    quantize(0, std::true_type{});
    int quad = 1;
    for (; 4 * quad + 4 <= all_see; ++quad) quantize(quad, std::false_type{});
    for (; 4 * quad < end; ++quad) quantize(quad, std::true_type{});
    sum += Ints(_mm512_shuffle_epi32(sum, _MM_PERM_BADC));
    sum += Ints(_mm512_shuffle_epi32(sum, _MM_PERM_CDAB));
    const __m512i list = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), sum);
    return _mm512_mask_expand_epi32(sums, rows_, list);
  }

 private:
  int last_lane() const { return 31 - std::countl_zero(static_cast<std::uint32_t>(rows_)); }
  Floats of_rows(const float* values) const {
    return _mm512_permutexvar_ps(lanes_, Lanes::load(values));
  }
  static void store(std::int32_t* to, __m512i bytes) {
    _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(bytes));
  }

  const SmallBlock& block_;
  SmallSet& set_;
  const __mmask16 rows_;
  __m512i lanes_;  // of the block, each four times
};

}  // namespace
}  // namespace qattn::cpu
