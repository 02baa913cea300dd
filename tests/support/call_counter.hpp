// Counts the calls of every CPU kernel, between the library's table and the kernel. The test
// program is linked with -Wl,--wrap=<entry point> for each of them; nothing of it is in the
// product.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qattn::test {

/// Tasks that a CPU kernel has run since the program started.
struct CallCount {
  std::string kernel;  // "cpu/avx2"
  std::int64_t calls = 0;
};
/// One entry per CPU kernel in this build.
std::vector<CallCount> call_counts();

/// Takes the counts when made; then tells who ran in between.
class CallWatch {
 public:
  CallWatch() : before_(call_counts()) {}
  /// CPU kernels that ran since, separated by a space.
  std::string ran() const;

 private:
  std::vector<CallCount> before_;
};

}  // namespace qattn::test
