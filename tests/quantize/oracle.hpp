// What quantize() must give, in float64 from the definition.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "qattn/qattn.hpp"

namespace qattn::test {

/// Elements of any type as their bits, and the value of one.
inline double value_of(DataType type, std::uint32_t bits) {
  if (type == DataType::float32 || type == DataType::bfloat16) {
    if (type == DataType::bfloat16) bits <<= 16U;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  const int exponent = static_cast<int>(bits >> 10U & 31U);
  const auto fraction = static_cast<double>(bits & 1023U);
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

inline std::size_t bytes_of(DataType type) { return type == DataType::float32 ? 4 : 2; }

/// A tensor of any type, contiguous unless `strides` say otherwise, as bytes.
struct Tensor {
  DataType type;
  Shape shape;
  Strides strides;
  std::vector<std::byte> bytes;

  Tensor(DataType element, const Shape& extents)
      : Tensor(element, extents, contiguous_strides(extents)) {}
  Tensor(DataType element, const Shape& extents, const Strides& steps)
      : type(element), shape(extents), strides(steps) {
    const bool empty = shape.batch == 0 || shape.seq == 0 || shape.heads == 0;
    const std::int64_t last = empty ? -1
                                    : (shape.batch - 1) * strides.batch +
                                          (shape.seq - 1) * strides.seq +
                                          (shape.heads - 1) * strides.heads + shape.head_dim - 1;
    bytes.resize(static_cast<std::size_t>(last + 1) * bytes_of(type));
  }

  std::int64_t at(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) const {
    return b * strides.batch + s * strides.seq + h * strides.heads + d;
  }
  void set(std::int64_t index, std::uint32_t bits) {
    std::memcpy(&bytes[static_cast<std::size_t>(index) * bytes_of(type)], &bits, bytes_of(type));
  }
  double get(std::int64_t index) const {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &bytes[static_cast<std::size_t>(index) * bytes_of(type)], bytes_of(type));
    return value_of(type, bits);
  }
  /// Calls body(b, s, h, d) for every element.
  template <typename Body>
  void for_elements(Body body) const {
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t s = 0; s < shape.seq; ++s) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
          for (std::int64_t d = 0; d < shape.head_dim; ++d) body(b, s, h, d);
        }
      }
    }
  }
};

/// Values in an int8 layout of their own, and scales.
struct Quantized {
  std::vector<std::int8_t> values;
  std::vector<float> scales;
};

/// Entries of the result that nothing may write.
inline constexpr std::int8_t kUntouched = -128;

/// The definition. A double that is rounded to float32 after a division of two float32 is the
/// correctly rounded quotient (53 >= 2 * 24 + 2 bits).
inline Quantized quantize_by_definition(const Tensor& x, const Strides& out_strides,
                                        std::size_t out_size) {
  Quantized result{std::vector<std::int8_t>(out_size, kUntouched), {}};
  std::vector<double> heads(static_cast<std::size_t>(x.shape.heads), 0.0);
  x.for_elements([&](auto b, auto s, auto h, auto d) {
    double& largest = heads[static_cast<std::size_t>(h)];
    largest = std::fmax(largest, std::fabs(x.get(x.at(b, s, h, d))));
  });
  for (const double largest : heads) {
    auto scale = static_cast<float>(largest / 127.0);
    if (largest == 0) {
      scale = 1.0F;
    } else if (static_cast<float>(largest / static_cast<double>(scale)) >= 127.5F) {
      scale = std::nextafter(scale, std::numeric_limits<float>::infinity());
    }
    result.scales.push_back(scale);
  }
  x.for_elements([&](auto b, auto s, auto h, auto d) {
    const auto scale = static_cast<double>(result.scales[static_cast<std::size_t>(h)]);
    const double rounded = std::nearbyint(static_cast<float>(x.get(x.at(b, s, h, d)) / scale));
    result.values[static_cast<std::size_t>(b * out_strides.batch + s * out_strides.seq +
                                           h * out_strides.heads + d)] =
        static_cast<std::int8_t>(rounded);
  });
  return result;
}

}  // namespace qattn::test
