// 16-bit probabilities for a few rows of a block, where most make do with 8 bits.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/tile/numerics.hpp"
#include "cpu/tile/small_lanes.hpp"
#include "cpu/tile/small_memory.hpp"

namespace qattn::cpu {
namespace {

// Four rows by four keys in the lanes: narrowed to bytes, they are the operand of the second
// product. Two and a half shuffles bring them there, and the exponentials of twelve other rows are
// saved. Sums go to group_sum.
class SmallRefinement {
 public:
  using Lanes = SmallLanes16;
  using Floats = Lanes::Floats;
  using Ints = Lanes::Ints;

  SmallRefinement(SmallMemory& memory, SmallSet& set)
      : memory_(memory), set_(set), lanes_(lanes_of(set)) {}

  void run() {
    const Floats minus_maximum = -of_rows(memory_.maximum);
    const Floats factors = of_rows(memory_.factors);
    const Ints key = Lanes::Ints(_mm512_set4_epi32(3, 2, 1, 0));
    const Ints visible = Ints(_mm512_permutexvar_epi32(lanes_, Lanes::load(memory_.visible))) - key;
    // Lanes of a pair of keys: even ones from the first, odd ones from the second.
    const __m512i pair = _mm512_add_epi32(lanes_, _mm512_set4_epi32(16, 0, 16, 0));
    Ints sum = Lanes::splat(0);
    for (int quad = 0; 4 * quad < end_; ++quad) {
      const float* scores = memory_.scores + 4 * quad * kSmallRows;
      const auto two_keys = [&](int i) {
        return _mm512_permutex2var_ps(Lanes::load(scores + i * kSmallRows), pair,
                                      Lanes::load(scores + (i + 1) * kSmallRows));
      };
      const Floats score = _mm512_mask_blend_ps(0xCCCC, two_keys(0), two_keys(2));
      const Floats x = Lanes::fma(score + minus_maximum, factors, Lanes::splat(kLess));
      const auto split =
          split_exponent<Lanes>(Lanes::max_negative(x, Lanes::splat(kLowestExponent)));
      const Floats p = scale<Lanes>(exp2_times_130560<Lanes>(split.fraction), split);
      __mmask16 seen = _mm512_cmpgt_epi32_mask(visible, Lanes::splat(4 * quad));
      if (quad == 0) seen &= 0xEEEE;  // key 0 is a group of its own
      const __m512i code = _mm512_maskz_mov_epi32(seen, Lanes::to_ints(p));
      sum += Ints(code);
      store(set_.high + quad * kSetRows, _mm512_srli_epi32(code, 8));
      store(set_.low + quad * kSetRows, code);
    }
    sum += Ints(_mm512_shuffle_epi32(sum, _MM_PERM_BADC));
    sum += Ints(_mm512_shuffle_epi32(sum, _MM_PERM_CDAB));
    alignas(kScratchAlignment) std::int32_t sums[kSmallRows];
    Lanes::store(sums, sum);
    for (int i = 0; i < kSetRows; ++i) memory_.group_sum[set_.lanes[i]] = sums[4 * i];
  }

 private:
  // The set's lanes of the block, each four times.
  static __m512i lanes_of(const SmallSet& set) {
    const __m128i lanes = _mm_load_si128(reinterpret_cast<const __m128i*>(set.lanes));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
        _mm512_castsi128_si512(lanes));
  }
  Floats of_rows(const float* values) const {
    return _mm512_permutexvar_ps(lanes_, Lanes::load(values));
  }
  static void store(std::int32_t* to, __m512i bytes) {
    _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(bytes));
  }

  SmallMemory& memory_;
  SmallSet& set_;
  const __m512i lanes_;
  const int end_ = memory_.visible[set_.lanes[kSetRows - 1]];
};

}  // namespace
}  // namespace qattn::cpu
