// The header of a .npy file: a Python dictionary literal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qattn::command {

/// What a header says, unchecked against the rest of the file.
struct NpyHeader {
  std::string descr;  // "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// Parses "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }". Throws InputError with
/// what is wrong, without the file's name.
NpyHeader parse_npy_header(std::string_view text);

}  // namespace qattn::command
