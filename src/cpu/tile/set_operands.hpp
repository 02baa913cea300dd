// What the verbs of row_block.hpp want to know of a set: rows of several heads side by side in the
// lanes of one vector (decode_chunk.hpp).
#pragma once

#include <cstdint>

#include "cpu/decode_shape.hpp"
#include "cpu/tile/elements.hpp"
#include "cpu/tile/tile_registers.hpp"

namespace qattn::cpu {
namespace {

// Probabilities as integers of 32 bits, [key][lane].
template <class Lanes>
struct SetElements {
  using Ints = typename Lanes::Ints;
  static constexpr bool kPlainCodes = true;
  static constexpr std::int32_t kWordBias = 0;
  static constexpr int operands(Codes) { return 1; }
  static Ints combine(const Ints (&sums)[1]) { return sums[0]; }
};

template <class LanesType>
struct SetOperands {
  using Lanes = LanesType;
  using Elements = SetElements<Lanes>;
  using Ints = typename Lanes::Ints;
  static constexpr int kRowVectors = 1;
  static constexpr int kBlockRows = static_cast<int>(kSetLanes);
  static constexpr int kStep = 4;
  static constexpr int kKeyQuantum = 16;
  static constexpr bool kBytesAreWords = false;
  static_assert(Lanes::kLanes == kSetLanes);

  [[gnu::always_inline]] static void keep_awake() { dot_signed<0, 2, 4>(); }

  template <Codes>
  [[gnu::always_inline]] static void put(std::int32_t* codes, int, int step,
                                         const Ints (&of_keys)[kStep], Ints (&sums)[1]) {
    for (int i = 0; i < kStep; ++i)
      Lanes::store(codes + (step * kStep + i) * kBlockRows, of_keys[i]);
    sums[0] = sums[0] + ((of_keys[0] + of_keys[1]) + (of_keys[2] + of_keys[3]));
  }
};

}  // namespace
}  // namespace qattn::cpu
