#include "core/view.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "qattn/error.hpp"

namespace qattn::core {
namespace {

constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max();

// A dimension of a tensor: its extent and the stride that the view gives.
struct Dimension {
  const char* name;
  std::int64_t extent;
  std::int64_t stride;
};

// Inside to outside in a contiguous tensor.
std::array<Dimension, 3> dimensions_of(const Shape& shape, const Strides& strides) {
  return {{{"heads", shape.heads, strides.heads},
           {"seq", shape.seq, strides.seq},
           {"batch", shape.batch, strides.batch}}};
}

}  // namespace

void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

std::string to_text(const Shape& s) {
  std::string text = "(";
  text += std::to_string(s.batch);
  for (const std::int64_t extent : {s.seq, s.heads, s.head_dim}) {
    text += ", " + std::to_string(extent);
  }
  return text + ")";
}

void check_extents(const char* name, const Shape& shape) {
  for (const std::int64_t extent : {shape.batch, shape.seq, shape.heads, shape.head_dim}) {
    if (extent < 0 || extent > kMaxExtent) {
      refuse(std::string(name) + ".shape is " + to_text(shape) +
             " (allowed: extents from 0 to 2147483647)");
    }
  }
}

Strides normalise_strides(const char* name, const Shape& shape, const Strides& strides,
                          std::int64_t element_bytes, std::int64_t* span) {
  std::array<Dimension, 3> dimensions = dimensions_of(shape, strides);
  std::int64_t inner = shape.head_dim;  // elements spanned by the dimensions inside this one
  const bool empty = shape.batch == 0 || shape.seq == 0 || shape.heads == 0;
  for (Dimension& d : dimensions) {
    if (d.extent <= 1 || empty) {
      d.stride = inner;
      continue;
    }
    if (d.stride <= 0) {
      refuse(std::string(name) + ".strides." + d.name + " is " + std::to_string(d.stride) +
             " for a dimension of " + std::to_string(d.extent) +
             " entries (allowed: positive strides; a product of extents must fit 63 bits)");
    }
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(d.stride, d.extent - 1, &reach) ||
        __builtin_add_overflow(inner, reach, &inner) ||
        inner > std::numeric_limits<std::int64_t>::max() / element_bytes) {
      refuse(std::string(name) + ".strides." + d.name + " is " + std::to_string(d.stride) +
             " for " + std::to_string(d.extent) +
             " entries (allowed: a tensor that spans less than 2^63 bytes)");
    }
  }
  *span = empty ? 0 : inner;
  return {dimensions[2].stride, dimensions[1].stride, dimensions[0].stride};
}

// Sorted by stride, each dimension must step over everything inside it.
void check_output_strides(const char* name, const Shape& shape, const Strides& strides) {
  std::array<Dimension, 3> dimensions = dimensions_of(shape, strides);
  std::sort(dimensions.begin(), dimensions.end(), [](const Dimension& a, const Dimension& b) {
    return a.stride != b.stride ? a.stride < b.stride : a.extent < b.extent;
  });
  std::int64_t inner = shape.head_dim;
  for (const Dimension& d : dimensions) {
    if (d.extent <= 1) continue;
    if (d.stride < inner) {
      refuse(std::string(name) + ".strides." + d.name + " is " + std::to_string(d.stride) +
             " (allowed: at least " + std::to_string(inner) +
             ", so that no two entries share memory)");
    }
    inner = d.stride * (d.extent - 1) + inner;
  }
}

bool overlap(const Range& a, const Range& b) noexcept {
  if (a.bytes == 0 || b.bytes == 0 || a.data == nullptr || b.data == nullptr) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.data);
  return a_begin < b_begin + static_cast<std::uintptr_t>(b.bytes) &&
         b_begin < a_begin + static_cast<std::uintptr_t>(a.bytes);
}

}  // namespace qattn::core
