// cpu/scalar: plain C++ for any processor; the other tiers must give its bits.
#include <cstring>

#include "cpu/tile/panel_operands.hpp"
#include "cpu/tile/steps.hpp"

namespace qattn::cpu {
namespace {

// The verbs of the tile loop with one lane.
struct ScalarLanes {
  using Floats = float;
  using Ints = std::int32_t;
  using Mask = bool;
  using Sum = std::int32_t;
  static constexpr int kLanes = 1;

  static float load(const float* from) { return *from; }
  static std::int32_t load(const std::int32_t* from) { return *from; }
  static void store(float* to, float x) { *to = x; }
  static void store_unaligned(float* to, float x) { *to = x; }
  static void transpose(float (&)[1]) {}
  static void store(std::int32_t* to, std::int32_t x) { *to = x; }
  static float splat(float x) { return x; }
  static std::int32_t splat(std::int32_t x) { return x; }

  static float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static constexpr bool kScalesByFloor = false;
  static float floor(float x) {  // for x in the range of int32
    const auto towards_zero = static_cast<float>(static_cast<std::int32_t>(x));
    return towards_zero > x ? towards_zero - 1.0F : towards_zero;
  }
  static float max(float a, float b) { return a > b ? a : b; }
  template <class T>
  static T select(bool mask, T a, T b) {
    return mask ? a : b;
  }
  static bool any(bool mask) { return mask; }

  static std::int32_t as_ints(float x) {
    std::int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
  }
  static float as_floats(std::int32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  static float to_floats(std::int32_t x) { return static_cast<float>(x); }
  static std::int32_t hold(std::int32_t x) { return x; }
  static std::int32_t value(std::int32_t x) { return x; }
  template <int kBits>
  static std::int32_t shift_left(std::int32_t x) {
    return x << kBits;
  }
  template <std::uint32_t kMask>
  static std::int32_t merge_bits(std::int32_t a, std::int32_t b) {
    constexpr auto kSelect = static_cast<std::int32_t>(kMask);
    return (a & kSelect) | (b & ~kSelect);
  }
  static std::int32_t dot_pairs(std::int32_t sum, std::int32_t a, std::int32_t b) {
    return sum + static_cast<std::int16_t>(a) * static_cast<std::int16_t>(b) +
           (a >> 16) * (b >> 16);
  }
};

using Operands = PanelOperands<ScalarLanes, Pairs<ScalarLanes>, 4, 4>;

}  // namespace
}  // namespace qattn::cpu

extern "C" void qattn_cpu_scalar_run(const qattn::cpu::Work& work) {
  qattn::cpu::run_step<qattn::cpu::Operands, qattn::cpu::Operands>(work);
}
