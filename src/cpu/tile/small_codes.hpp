// Probabilities of the rows in the lanes of a SmallTask.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/tile/elements.hpp"
#include "cpu/tile/numerics.hpp"
#include "cpu/tile/small_memory.hpp"

namespace qattn::cpu {
namespace {

// Codes::mixed: 8-bit probabilities are there, and the rows of `words` get 16 bits.
template <class Lanes, Codes kCodes>
class SmallCodes {
 public:
  using Floats = typename Lanes::Floats;
  using Ints = typename Lanes::Ints;
  using Mask = typename Lanes::Mask;

  SmallCodes(const SmallBlock& block, SmallMemory& memory, Mask words = Mask(false))
      : block_(block),
        memory_(memory),
        visible_(Lanes::load(block.visible)),
        factors_(Lanes::load(block.factors)),
        minus_maximum_(-Lanes::load(block.maximum)),
        words_(words) {}

  /// Of the first row and the last, which see least and most.
  int all_see() const { return block_.visible[0]; }
  int visible_keys() const { return block_.visible[Lanes::kLanes - 1]; }

  /// Probabilities of keys [key, key + kSmallKeys), 0 for hidden keys and key 0: part `i` of the
  /// kSmallKeys parts of the work. Masked: some row does not see some key of these, or key is 0.
  template <bool kMasked>
  [[gnu::always_inline]] void part(int key, int i) {
    codes_[i % 4] = code(key + i);
    if (i % 4 == 3) finish_quad<kMasked>((key + i) / 4);
  }

  /// Sums of the probabilities, in units of 1/65280.
  Ints sum() const { return Lanes::template shift_left<8>(sums_[0]) + sums_[1]; }

 private:
  // The code of a score, a plain integer; anything for a key that the row does not see.
  [[gnu::always_inline]] Ints code(int key) const {
    const Floats score = Lanes::load(block_.scores + key * kSmallRows);
    const Floats x = Lanes::fma(score + minus_maximum_, factors_, Lanes::splat(kLess));
    // Exponents of visible keys are negative and no NaN.
    const auto split = split_exponent<Lanes>(Lanes::max_negative(x, Lanes::splat(kLowestExponent)));
    const Floats p = kCodes == Codes::bytes ? exp2_times_510<Lanes>(split.fraction)
                                            : exp2_times_130560<Lanes>(split.fraction);
    return Lanes::to_ints(scale<Lanes>(p, split));
  }

  template <bool kMasked>
  [[gnu::always_inline]] void finish_quad(int quad) {
    Ints shown = Lanes::splat(-1);  // bytes of the packed codes
    if constexpr (kMasked) {
      const Ints bits = (visible_ << 3) - Lanes::splat(32 * quad);
      // Counts from 32 on, where all keys are seen, shift everything out.
      shown = ~Lanes::shift_left_by(Lanes::splat(-1), Lanes::max(bits, Lanes::splat(0)));
      if (quad == 0) shown = shown & Lanes::splat(~0xFF);
    }
    const auto put = [&](Ints packed, Ints& sum, std::int32_t* to) {
      if constexpr (kMasked) packed = packed & shown;
      sum = Lanes::dot_quads(sum, packed, Lanes::splat(0x01010101));
      Lanes::store(to + quad * kSmallRows, packed);
    };
    if constexpr (kCodes == Codes::bytes) {
      put(pack_bytes(codes_), sums_[0], memory_.high);
    } else {
      Ints high;
      Ints low;
      pack_words(high, low, codes_);
      if constexpr (kCodes == Codes::mixed) {
        high = Lanes::select(words_, high, Lanes::load(memory_.high + quad * kSmallRows));
        low = Lanes::select(words_, low, Lanes::splat(0));
      }
      put(high, sums_[0], memory_.high);
      put(low, sums_[1], memory_.low);
    }
  }

  // Four rows of key 0, of key 1, ... within 128 bits become four keys of row 0, ...
  static Ints pack_bytes(const Ints (&codes)[4]) {
    const Ints even = Lanes::narrow_signed(codes[0], codes[1]);
    const Ints odd = Lanes::narrow_signed(codes[2], codes[3]);
    return Lanes::shuffle_bytes(
        Lanes::narrow_to_bytes(even, odd),
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  }
  static void pack_words(Ints& high, Ints& low, const Ints (&codes)[4]) {
    const __m128i split = _mm_setr_epi8(0, 8, 2, 10, 4, 12, 6, 14, 1, 9, 3, 11, 5, 13, 7, 15);
    const Ints ab = Lanes::shuffle_bytes(Lanes::narrow_unsigned(codes[0], codes[1]), split);
    const Ints cd = Lanes::shuffle_bytes(Lanes::narrow_unsigned(codes[2], codes[3]), split);
    low = Lanes::interleave_low_words(ab, cd);
    high = Lanes::interleave_high_words(ab, cd);
  }

  const SmallBlock& block_;
  SmallMemory& memory_;
  const Ints visible_;
  const Floats factors_;
  const Floats minus_maximum_;
  const Mask words_;
  Ints codes_[4];
  Ints sums_[2] = {Lanes::splat(0), Lanes::splat(0)};
};

}  // namespace
}  // namespace qattn::cpu
