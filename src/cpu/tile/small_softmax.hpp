// Scores and probabilities of the rows in the lanes of a SmallTask.
#pragma once

#include <array>
#include <cstdint>

#include "cpu/tile/elements.hpp"
#include "cpu/tile/numerics.hpp"
#include "cpu/tile/small_memory.hpp"

namespace qattn::cpu {
namespace {

// 0, 1, 2, ...: compared from memory, a key's number costs no register and no way there.
alignas(64) constexpr auto kKeyNumbers = [] {
  std::array<std::int32_t, kGroupKeys> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int32_t>(i);
  return numbers;
}();

template <class Lanes>
class SmallSoftmax {
 public:
  using Floats = typename Lanes::Floats;
  using Ints = typename Lanes::Ints;
  using Mask = typename Lanes::Mask;

  explicit SmallSoftmax(SmallMemory& memory)
      : memory_(memory),
        visible_(Lanes::load(memory.visible)),
        factors_(Lanes::load(memory.factors)),
        all_see_(memory.visible[0]),
        keys_(memory.visible[Lanes::kLanes - 1]) {}

  // Scores of the keys that a row sees and, for each row, the largest but that of key 0.
  template <int kSteps>  // dwords of every query and key; 0: any
  Floats scores(std::int64_t any_steps) {
    const std::int64_t steps = kSteps == 0 ? any_steps : kSteps;
    const Ints start = Lanes::load(memory_.start);
    Floats maxima[2] = {Lanes::splat(kHidden), Lanes::splat(kHidden)};
    for (int key = 0; key < keys_; key += kSmallKeys) {
      Sum sums[kSmallKeys];
#pragma GCC unroll 8
      for (auto& sum : sums) sum = Lanes::hold(start);
      const std::uint8_t* from = memory_.keys + key * 4 * steps;
      const auto add = [&](std::int64_t step) __attribute__((always_inline)) {
        const Ints query = Lanes::load(memory_.queries + step * kSmallRows);
#pragma GCC unroll 8
        for (int i = 0; i < kSmallKeys; ++i) {
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
      const bool hidden = key == 0 || key + kSmallKeys > all_see_;  // from some row
#pragma GCC unroll 8
      for (int i = 0; i < kSmallKeys; ++i) {
        const Floats score = Lanes::as_floats(Lanes::value(sums[i]));
        Lanes::store(memory_.scores + (key + i) * kSmallRows, score);
        if (!hidden) maxima[i % 2] = Lanes::max(maxima[i % 2], score);
      }
      if (!hidden) continue;
#pragma GCC unroll 8
      for (int i = 0; i < kSmallKeys; ++i) {
        if (key + i == 0) continue;
        const Floats score = Lanes::as_floats(Lanes::value(sums[i]));
        maxima[i % 2] =
            Lanes::max_where(maxima[i % 2], score, visible_, Lanes::splat(kKeyNumbers[key + i]));
      }
    }
    return Lanes::max(maxima[0], maxima[1]);
  }

  // Probabilities of the keys, but key 0, and their sum in units of 1/65280.
  // Codes::mixed: 8-bit probabilities are there, and rows of `words` get 16 bits.
  template <Codes kCodes>
  Ints quantize(Floats maximum, Mask words = Mask(false)) {
    words_ = words;
    minus_maximum_ = -maximum;
    sums_[0] = sums_[1] = Lanes::splat(0);
    quantize_quad<kCodes, true>(0);
    int quad = 1;
    for (; 4 * quad + 4 <= all_see_; ++quad) quantize_quad<kCodes, false>(quad);
    for (; 4 * quad < keys_; ++quad) quantize_quad<kCodes, true>(quad);
    return Lanes::template shift_left<8>(sums_[0]) + sums_[1];
  }

 private:
  using Sum = typename Lanes::Sum;

  // The code of a score, a plain integer; anything for a key that the row does not see.
  template <Codes kCodes>
  [[gnu::always_inline]] Ints code(int key) const {
    const Floats score = Lanes::load(memory_.scores + key * kSmallRows);
    // The difference, exact, where Zen 4 has pipes to spare.
    const Floats difference = Lanes::fma(score, Lanes::splat(1.0F), minus_maximum_);
    const Floats x = Lanes::fma(difference, factors_, Lanes::splat(kLess));
    // Exponents of visible keys are negative and no NaN.
    const auto split = split_exponent<Lanes>(Lanes::max_negative(x, Lanes::splat(kLowestExponent)));
    const Floats p = kCodes == Codes::bytes ? exp2_times_510<Lanes>(split.fraction)
                                            : exp2_times_130560<Lanes>(split.fraction);
    return Lanes::to_ints(scale<Lanes>(p, split));
  }

  template <Codes kCodes, bool kMasked>  // masked: some row does not see some key, or it is key 0's
  [[gnu::always_inline]] void quantize_quad(int quad) {
    Ints codes[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) codes[i] = code<kCodes>(4 * quad + i);
    Ints hidden = Lanes::splat(0);  // bytes of the packed codes
    if constexpr (kMasked) {
      const Ints bits = (visible_ << 3) - Lanes::splat(32 * quad);
      // No bit is left where all keys are seen: counts from 32 on shift everything out.
      hidden = Lanes::shift_left_by(Lanes::splat(-1), Lanes::max(bits, Lanes::splat(0)));
      if (quad == 0) hidden |= Lanes::splat(0xFF);
    }
    const auto put = [&](Ints packed, Ints& sum, std::int32_t* to) {
      if constexpr (kMasked) packed = packed & ~hidden;
      sum = Lanes::dot_quads(sum, packed, Lanes::splat(0x01010101));
      Lanes::store(to + quad * kSmallRows, packed);
    };
    if constexpr (kCodes == Codes::bytes) {
      put(pack_bytes(codes), sums_[0], memory_.high);
    } else {
      Ints high;
      Ints low;
      pack_words(high, low, codes);
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

  SmallMemory& memory_;
  const Ints visible_;
  const Floats factors_;
  const int all_see_;
  const int keys_;
  Floats minus_maximum_ = Lanes::splat(0.0F);
  Mask words_ = Mask(false);
  Ints sums_[2];
};

}  // namespace
}  // namespace qattn::cpu
