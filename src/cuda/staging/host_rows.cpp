#include "cuda/staging/host_rows.hpp"

#include <algorithm>
#include <cstring>

namespace qattn::cuda::staging {
namespace {

// Calls copy(address, packed offset from `begin`, bytes) for every stretch of [begin, end).
template <typename Copy>
void for_each_stretch(const HostRows& rows, std::int64_t begin, std::int64_t end, Copy copy) {
  if (begin >= end) return;
  const std::int64_t row = begin / rows.row_bytes;
  std::int64_t skip = begin % rows.row_bytes;
  std::int64_t i2 = row % rows.count[2];
  std::int64_t i1 = row / rows.count[2] % rows.count[1];
  std::int64_t i0 = row / rows.count[2] / rows.count[1];
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t bytes = std::min(rows.row_bytes - skip, end - at);
    copy(rows.data + i0 * rows.stride[0] + i1 * rows.stride[1] + i2 * rows.stride[2] + skip,
         at - begin, static_cast<std::size_t>(bytes));
    at += bytes;
    skip = 0;
    if (++i2 < rows.count[2]) continue;
    i2 = 0;
    if (++i1 < rows.count[1]) continue;
    i1 = 0;
    ++i0;
  }
}

}  // namespace

const std::byte* HostRows::end() const noexcept {
  const std::byte* last = data;
  for (std::size_t i = 0; i < 3; ++i) last += (count[i] - 1) * stride[i];
  return last + row_bytes;
}

HostRows joined(const HostRows& rows) noexcept {
  HostRows result;
  result.data = rows.data;
  result.row_bytes = rows.row_bytes;
  std::size_t inner = 3;  // the outermost dimension of the result so far; 3: none
  for (std::size_t i = 3; i-- > 0;) {
    if (rows.count[i] == 1) continue;
    // What a step of this dimension is where it goes on from the last entry inside.
    std::int64_t inside = result.row_bytes;
    const bool fits =
        inner == 3 || !__builtin_mul_overflow(result.count[inner], result.stride[inner], &inside);
    if (fits && rows.stride[i] == inside) {
      (inner == 3 ? result.row_bytes : result.count[inner]) *= rows.count[i];
      continue;
    }
    --inner;
    result.count[inner] = rows.count[i];
    result.stride[inner] = rows.stride[i];
  }
  return result;
}

HostRows rows_of(const void* data, const Shape& shape, const Strides& strides,
                 std::int64_t element_bytes) noexcept {
  HostRows rows;
  rows.data = static_cast<std::byte*>(const_cast<void*>(data));
  rows.count = {shape.batch, shape.seq, shape.heads};
  rows.stride = {strides.batch * element_bytes, strides.seq * element_bytes,
                 strides.heads * element_bytes};
  rows.row_bytes = shape.head_dim * element_bytes;
  return joined(rows);
}

void gather(const HostRows& rows, std::int64_t begin, std::int64_t end, std::byte* to) noexcept {
  for_each_stretch(rows, begin, end, [to](const std::byte* from, std::int64_t at, std::size_t n) {
    std::memcpy(to + at, from, n);
  });
}

void scatter(const HostRows& rows, std::int64_t begin, std::int64_t end,
             const std::byte* from) noexcept {
  for_each_stretch(rows, begin, end, [from](std::byte* to, std::int64_t at, std::size_t n) {
    std::memcpy(to, from + at, n);
  });
}

}  // namespace qattn::cuda::staging
