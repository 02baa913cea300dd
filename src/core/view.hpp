// Checks of tensor views that every call of the API shares. Every call comes by here: names are
// put together into messages only when something is refused.
#pragma once

#include <cstdint>
#include <string>

#include "qattn/tensor.hpp"

namespace qattn::core {

/// Throws Error(invalid_argument).
[[noreturn]] void refuse(const std::string& message);

/// Bytes of an element.
constexpr std::int64_t element_bytes(DataType type) noexcept {
  switch (type) {
    case DataType::float32:
      return 4;
    case DataType::float16:
    case DataType::bfloat16:
      return 2;
    default:
      return 1;
  }
}

/// "(2, 72, 4, 32)".
std::string to_text(const Shape& shape);

/// Throws unless every extent lies in 0..2^31-1: kernels count tokens, heads and batch entries in
/// 32 bits.
void check_extents(const char* name, const Shape& shape);

/// Strides for the kernels: those of dimensions with one entry replaced by contiguous ones, the
/// rest checked to be positive. `span` receives the distance from the first to one past the last
/// element; in bytes it fits 63 bits. An empty tensor has the strides of a contiguous one and span
/// 0.
Strides normalise_strides(const char* name, const Shape& shape, const Strides& strides,
                          std::int64_t element_bytes, std::int64_t* span);

/// Throws unless distinct entries of an output lie in distinct memory. `strides` are normalised.
void check_output_strides(const char* name, const Shape& shape, const Strides& strides);

/// The bytes that an argument occupies.
struct Range {
  const char* name;
  const void* data;
  std::int64_t bytes;
};

/// Whether two arguments share memory; null and empty ones never do.
bool overlap(const Range& a, const Range& b) noexcept;

}  // namespace qattn::core
