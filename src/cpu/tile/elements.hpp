// How packed operands hold int8 values and probabilities: 32-bit elements of `kStep` values each,
// in the form that a tier's dot product takes. A packed vector holds one element per row ("rows"
// operand); a panel element is broadcast to all lanes ("panel" operand).
//
// Probabilities arrive as `codes`: words whose low 16 bits are P + bias (or, for bytes, whose low 8
// bits are P) and whose upper bits are anything; plain integers where kPlainCodes says so.
#pragma once

#include <cstdint>
#include <cstring>

namespace qattn::cpu {
namespace {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// 16 bytes, compiled to whatever vector instructions the tier has.
using Bytes16 = std::int8_t __attribute__((vector_size(16)));
using Bytes8 = std::int8_t __attribute__((vector_size(8)));
using Shorts8 = std::int16_t __attribute__((vector_size(16)));
using Dwords4 = std::int32_t __attribute__((vector_size(16)));

template <class To, class From>
inline To load_bytes(const From* from) {
  To value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline void store_dwords(std::int32_t* to, Dwords4 x) { std::memcpy(to, &x, sizeof x); }

inline Bytes16 interleave_low(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Bytes16 interleave_high(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}

// Which numbers a group's probabilities are, and how they are stored.
enum class Codes {
  bytes,  // every row has 8-bit probabilities
  words,  // every row has 16-bit probabilities
  mixed,  // each row has one or the other, stored alike in 16 bits
};

// Four int8 per element, for u8 x s8 dot products: the rows operand is unsigned. Queries get 128
// added; 16-bit probabilities become two operands, upper and lower bytes.
template <class Lanes>
struct Quads {
  using Ints = typename Lanes::Ints;
  static constexpr int kStep = 4;
  static constexpr std::int32_t kQueryOffset = 128;
  static constexpr bool kPlainCodes = false;
  static constexpr std::int32_t kWordBias = 0;
  static constexpr std::int32_t kOnes = 0x01010101;
  static constexpr int operands(Codes codes) { return codes == Codes::bytes ? 1 : 2; }

  static Ints dot(Ints sum, Ints rows, Ints panel) { return Lanes::dot_quads(sum, rows, panel); }

  static Dwords4 widen(const std::int8_t* from) { return load_bytes<Dwords4>(from); }
  static Dwords4 query(Dwords4 x) { return x ^ static_cast<std::int32_t>(0x80808080); }

  // Elements of 16 columns from the kStep rows of a tensor.
  static void interleave(Dwords4 (&to)[4], const std::int8_t* const (&from)[kStep]) {
    const auto a = load_bytes<Bytes16>(from[0]);
    const auto b = load_bytes<Bytes16>(from[1]);
    const auto c = load_bytes<Bytes16>(from[2]);
    const auto d = load_bytes<Bytes16>(from[3]);
    const auto ab_low = reinterpret_cast<Shorts8>(interleave_low(a, b));
    const auto ab_high = reinterpret_cast<Shorts8>(interleave_high(a, b));
    const auto cd_low = reinterpret_cast<Shorts8>(interleave_low(c, d));
    const auto cd_high = reinterpret_cast<Shorts8>(interleave_high(c, d));
    to[0] = pairs_low(ab_low, cd_low);
    to[1] = pairs_high(ab_low, cd_low);
    to[2] = pairs_low(ab_high, cd_high);
    to[3] = pairs_high(ab_high, cd_high);
  }

  template <Codes kCodes>
  static void pack(Ints (&to)[operands(kCodes)], const Ints (&codes)[kStep]) {
    if constexpr (kCodes == Codes::bytes) {
      const Ints low = Lanes::template merge_bits<0x000000FFU>(
          codes[0], Lanes::template shift_left<8>(codes[1]));
      const Ints high = Lanes::template shift_left<16>(codes[2]);
      const Ints top = Lanes::template shift_left<24>(codes[3]);
      to[0] = Lanes::template merge_bits<0x0000FFFFU>(
          low, Lanes::template merge_bits<0x00FFFFFFU>(high, top));
    } else {
      const Ints even = Lanes::template merge_bits<0x0000FFFFU>(
          codes[0], Lanes::template shift_left<16>(codes[2]));
      const Ints odd = Lanes::template merge_bits<0x0000FFFFU>(
          codes[1], Lanes::template shift_left<16>(codes[3]));
      to[0] = Lanes::template merge_bits<0x00FF00FFU>(Lanes::template shift_right<8>(even), odd);
      to[1] = Lanes::template merge_bits<0x00FF00FFU>(even, Lanes::template shift_left<8>(odd));
    }
  }
  // Sum over the two bytes of 16-bit probabilities.
  static Ints combine(const Ints (&sums)[2]) {
    return Lanes::template shift_left<8>(sums[0]) + sums[1];
  }
  static Ints combine(const Ints (&sums)[1]) { return sums[0]; }

 private:
  static Dwords4 pairs_low(Shorts8 a, Shorts8 b) {
    return reinterpret_cast<Dwords4>(__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
  }
  static Dwords4 pairs_high(Shorts8 a, Shorts8 b) {
    return reinterpret_cast<Dwords4>(__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
  }
};

// Two int16 per element, for s16 x s16 dot products: 16-bit probabilities are stored less 32768,
// and 32768 * sum(v) makes up for it.
template <class Lanes>
struct Pairs {
  using Ints = typename Lanes::Ints;
  static constexpr int kStep = 2;
  static constexpr std::int32_t kQueryOffset = 0;
  static constexpr bool kPlainCodes = false;
  static constexpr std::int32_t kWordBias = -32768;
  static constexpr std::int32_t kOnes = 0x00010001;
  static constexpr int operands(Codes) { return 1; }

  static Ints dot(Ints sum, Ints rows, Ints panel) { return Lanes::dot_pairs(sum, rows, panel); }

  static Dwords4 widen(const std::int8_t* from) { return widen(load_bytes<Bytes8>(from)); }
  static Dwords4 query(Dwords4 x) { return x; }

  static void interleave(Dwords4 (&to)[4], const std::int8_t* const (&from)[kStep]) {
    const auto a = load_bytes<Bytes16>(from[0]);
    const auto b = load_bytes<Bytes16>(from[1]);
    const Bytes16 halves[2] = {interleave_low(a, b), interleave_high(a, b)};
    for (int i = 0; i < 4; ++i) {
      const auto* bytes = reinterpret_cast<const std::int8_t*>(&halves[i / 2]);
      to[i] = widen(load_bytes<Bytes8>(bytes + i % 2 * 8));
    }
  }

  template <Codes>
  static void pack(Ints (&to)[1], const Ints (&codes)[kStep]) {
    to[0] =
        Lanes::template merge_bits<0x0000FFFFU>(codes[0], Lanes::template shift_left<16>(codes[1]));
  }
  static Ints combine(const Ints (&sums)[1]) { return sums[0]; }

 private:
  static Dwords4 widen(Bytes8 x) {
    return reinterpret_cast<Dwords4>(__builtin_convertvector(x, Shorts8));
  }
};

}  // namespace
}  // namespace qattn::cpu
