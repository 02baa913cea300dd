// Scores of the rows in the lanes of a SmallTask.
#pragma once

#include <array>
#include <cstddef>
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

template <class Lanes, int kSteps>  // dwords of every query and key; 0: any
class SmallScores {
 public:
  using Floats = typename Lanes::Floats;
  using Ints = typename Lanes::Ints;

  SmallScores(SmallBlock& block, const std::uint8_t* keys, std::int64_t head_dim)
      : block_(block), keys_(keys), any_steps_((head_dim + 3) / 4) {}

  /// Of the first row and the last, which see least and most.
  int all_see() const { return block_.visible[0]; }
  int visible_keys() const { return block_.visible[Lanes::kLanes - 1]; }

  /// Scores of keys [key, key + kSmallKeys); `beside(i)`, i below kSmallKeys, is called on the way.
  template <class Beside>
  [[gnu::always_inline]] void step(int key, const Beside& beside) {
    Sum sums[kSmallKeys];
    const Ints start = Lanes::load(block_.start);
#pragma GCC unroll 8
    for (auto& sum : sums) sum = Lanes::hold(start);
    const std::int64_t steps = kSteps == 0 ? any_steps_ : kSteps;
    const std::uint8_t* from = keys_ + key * 4 * steps;
    const auto add = [&](std::int64_t step) __attribute__((always_inline)) {
      const Ints query = Lanes::load(block_.queries + step * kSmallRows);
#pragma GCC unroll 8
      for (int i = 0; i < kSmallKeys; ++i) {
        const auto key_quad = load_bytes<std::int32_t>(from + (i * steps + step) * 4);
        sums[i] =
            Lanes::hold(Lanes::dot_quads(Lanes::value(sums[i]), Lanes::splat(key_quad), query));
      }
    };
    constexpr int kStepsOfPart = kSteps / kSmallKeys;
#pragma GCC unroll 8
    for (int i = 0; i < kSmallKeys; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < kStepsOfPart; ++j) add(i * kStepsOfPart + j);
      beside(i);
    }
    for (std::int64_t step = kSteps; step < steps; ++step) add(step);
    const bool hidden = key == 0 || key + kSmallKeys > all_see();  // from some row
#pragma GCC unroll 8
    for (int i = 0; i < kSmallKeys; ++i) {
      const Floats score = Lanes::as_floats(Lanes::value(sums[i]));
      Lanes::store(block_.scores + (key + i) * kSmallRows, score);
      if (!hidden) maxima_[i % 2] = Lanes::max(maxima_[i % 2], score);
    }
    if (!hidden) return;
    const Ints visible = Lanes::load(block_.visible);
#pragma GCC unroll 8
    for (int i = 0; i < kSmallKeys; ++i) {
      if (key + i == 0) continue;
      const Floats score = Lanes::as_floats(Lanes::value(sums[i]));
      maxima_[i % 2] = Lanes::max_where(maxima_[i % 2], score, visible,
                                        Lanes::splat(kKeyNumbers.data()[key + i]));
    }
  }

  /// Stores, for each row, the largest score of its visible keys but key 0.
  void finish() { Lanes::store(block_.maximum, Lanes::max(maxima_[0], maxima_[1])); }

 private:
  using Sum = typename Lanes::Sum;

  SmallBlock& block_;
  const std::uint8_t* const keys_;
  const std::int64_t any_steps_;
  Floats maxima_[2] = {Lanes::splat(kHidden), Lanes::splat(kHidden)};
};

}  // namespace
}  // namespace qattn::cpu
