// Facts about a device that plans depend on, and which devices the compiled kernels can run on.
#pragma once

#include <string_view>

namespace qattn::cuda {

/// Read once per process.
struct DeviceProperties {
  int capability = 0;  // 10 * major + minor
  int l2_bytes = 0;
  int multiprocessors = 0;
  int block_shared_bytes = 0;  // at most, when asked for
  int handle = 0;              // CUdevice
};

/// Whether a device can be used; unusable_reason() says why not.
bool is_usable(int ordinal);

/// Of a device; zeros for one that does not exist.
const DeviceProperties& properties(int ordinal);

/// Whether code built for `architectures` ("80-real;90-real;80-virtual", CMake's notation;
/// separated by ';', ',' or spaces) runs on a device of `capability`: machine code of its own major
/// version that is not newer, or PTX that is not newer. A number with neither suffix is both; one
/// with a letter ("90a-real") runs nowhere else. For names ("native", "all") the launch will tell.
constexpr bool has_code_for(std::string_view architectures, int capability) noexcept {
  constexpr std::string_view kSeparators = ";, ";
  while (!architectures.empty()) {
    const std::size_t end = architectures.find_first_of(kSeparators);
    std::string_view entry = architectures.substr(0, end);
    architectures =
        end == std::string_view::npos ? std::string_view{} : architectures.substr(end + 1);
    if (entry.empty()) continue;
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (!is_digit(entry.front())) return true;
    int number = 0;
    while (!entry.empty() && is_digit(entry.front())) {
      number = 10 * number + (entry.front() - '0');
      entry.remove_prefix(1);
    }
    if (!entry.empty() && entry.front() != '-') {
      if (number == capability) return true;
      continue;
    }
    const bool machine_code = entry != "-virtual";
    const bool ptx = entry != "-real";
    if (machine_code && number / 10 == capability / 10 && number <= capability) return true;
    if (ptx && number <= capability) return true;
  }
  return false;
}

}  // namespace qattn::cuda
