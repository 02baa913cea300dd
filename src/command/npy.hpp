// NumPy's .npy files (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html):
// format versions 1 to 3 are read, version 1 is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace qattn::command {

/// Element types that the command reads. Little-endian, as NumPy writes them on every machine that
/// this library runs on.
enum class NpyType : std::uint8_t { int8, float16, float32 };

/// "int8".
const char* name_of(NpyType type);
/// "(1, 1024, 9, 64)".
std::string shape_text(const std::vector<std::int64_t>& shape);

/// A file's array, in C order.
struct NpyArray {
  std::string path;
  NpyType type = NpyType::int8;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  /// Number of elements.
  std::int64_t size() const;
  /// Elements of an int8 array.
  std::vector<std::int8_t> int8_values() const;
  /// Elements of a float32 or float16 array.
  std::vector<float> float_values() const;
};

/// Reads a file. Nothing in it is trusted: never takes more memory than a small multiple of what
/// the file holds. Throws InputError that names the path and what is wrong, an element type that is
/// not one of `allowed` among it.
NpyArray read_npy(const std::string& path, const std::vector<NpyType>& allowed = {
                                               NpyType::int8, NpyType::float16, NpyType::float32});

/// Writes a float32 array in C order; `values` has as many entries as `shape` says. Throws
/// InputError.
void write_npy(const std::string& path, const std::vector<std::int64_t>& shape,
               const std::vector<float>& values);

}  // namespace qattn::command
