// Tensors in host memory as rows of bytes, and the copying of any part of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "qattn/tensor.hpp"

namespace qattn::cuda::staging {

/// Rows of bytes at constant distances in up to three dimensions, outermost first. "Packed" is the
/// same bytes in the same order without gaps.
struct HostRows {
  std::byte* data = nullptr;  // of an input it is only read
  std::array<std::int64_t, 3> count = {1, 1, 1};
  std::array<std::int64_t, 3> stride = {0, 0, 0};  // bytes
  std::int64_t row_bytes = 0;

  std::int64_t bytes() const noexcept { return count[0] * count[1] * count[2] * row_bytes; }
  /// No gaps at all.
  bool is_packed() const noexcept { return count == std::array<std::int64_t, 3>{1, 1, 1}; }
  /// One past the last byte.
  const std::byte* end() const noexcept;
};

/// The rows of a tensor, joined: as few and as long as they can be. `data` may be const memory.
/// Packed, the tensor must fit 63 bits of bytes.
HostRows rows_of(const void* data, const Shape& shape, const Strides& strides,
                 std::int64_t element_bytes) noexcept;

/// The same bytes in the same order, in fewer and longer rows.
HostRows joined(const HostRows& rows) noexcept;

/// Copies the bytes [begin, end), counted as if packed, to `to`.
void gather(const HostRows& rows, std::int64_t begin, std::int64_t end, std::byte* to) noexcept;

/// Copies `from` to the bytes [begin, end), counted as if packed.
void scatter(const HostRows& rows, std::int64_t begin, std::int64_t end,
             const std::byte* from) noexcept;

}  // namespace qattn::cuda::staging
