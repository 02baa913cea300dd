// Structs whose first field is their size: how versions of them are read and written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace qattn::capi {

/// Throws Error(invalid_argument) unless `name`, with a null or not-null pointer, may have
/// `struct_size`: a multiple of 8, so that no field is cut in two, and of a plausible magnitude.
void check_struct(const char* name, const void* pointer, std::size_t struct_size);

/// Throws Error(invalid_argument) unless all bytes from `known_size` on, which this library has no
/// fields for, are 0.
void check_unknown_fields(const char* name, const void* pointer, std::size_t struct_size,
                          std::size_t known_size);

/// The fields that `given` has, `defaults` for those that it is too old to have. Throws
/// Error(invalid_argument) if it is null, of an impossible size, or newer and not 0 where new.
template <typename Struct>
Struct read_struct(const char* name, const Struct* given, const Struct& defaults) {
  static_assert(std::is_trivially_copyable_v<Struct> && sizeof(Struct) % 8 == 0);
  check_struct(name, given, given == nullptr ? 0 : given->struct_size);
  check_unknown_fields(name, given, given->struct_size, sizeof(Struct));
  Struct result = defaults;
  std::memcpy(&result, given, std::min(given->struct_size, sizeof(Struct)));
  return result;
}

/// Writes `value` into a struct of `struct_size` bytes: the fields that it has, and 0 into those
/// that this library does not know. Throws Error(invalid_argument) for null or an impossible size.
template <typename Struct>
void write_struct(const char* name, Struct* to, std::size_t struct_size, Struct value) {
  static_assert(std::is_trivially_copyable_v<Struct> && sizeof(Struct) % 8 == 0);
  check_struct(name, to, struct_size);
  value.struct_size = struct_size;
  const std::size_t known = std::min(struct_size, sizeof(Struct));
  std::memcpy(to, &value, known);
  std::memset(reinterpret_cast<std::byte*>(to) + known, 0, struct_size - known);
}

}  // namespace qattn::capi
