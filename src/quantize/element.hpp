// Floating-point element types as bits: magnitudes of finite values, infinity and NaN are ordered
// like the integers that hold them, so integer maxima find the largest magnitude and every NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace qattn::quantization {

/// IEEE binary32.
struct Float32 {
  using Bits = std::int32_t;
  static constexpr Bits kMagnitude = 0x7FFFFFFF;
  static constexpr Bits kInfinity = 0x7F800000;
  static float widen(Bits bits) noexcept { return std::bit_cast<float>(bits); }
};

/// IEEE binary16.
struct Float16 {
  using Bits = std::int16_t;
  static constexpr Bits kMagnitude = 0x7FFF;
  static constexpr Bits kInfinity = 0x7C00;
  /// Exact for finite values. The exponent field grows by the difference of the biases, 127 - 15;
  /// for a subnormal, which has no leading 1, by one more, and that 1 is subtracted as 2^-14. No
  /// step has a subnormal float32 in it: these are slow.
  static float widen(Bits bits) noexcept {
    constexpr std::int32_t kBias = (127 - 15) << 23;
    constexpr std::int32_t kOne = 1 << 23;
    const std::int32_t magnitude = (bits & kMagnitude) << 13;
    const std::int32_t normal = magnitude + kBias;
    const std::int32_t subnormal = std::bit_cast<std::int32_t>(
        std::bit_cast<float>(magnitude + kBias + kOne) - std::bit_cast<float>(kBias + kOne));
    const std::int32_t value = magnitude < kOne ? subnormal : normal;
    return std::bit_cast<float>(value | (bits & ~std::int32_t{kMagnitude}) << 16);
  }
};

/// The upper half of IEEE binary32.
struct BFloat16 {
  using Bits = std::int16_t;
  static constexpr Bits kMagnitude = 0x7FFF;
  static constexpr Bits kInfinity = 0x7F80;
  static float widen(Bits bits) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(static_cast<std::uint16_t>(bits))
                                << 16U);
  }
};

}  // namespace qattn::quantization
