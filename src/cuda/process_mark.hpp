// Tells a process from a child that was forked from it, without a system call.
#pragma once

#include <sys/types.h>

namespace qattn::cuda {

/// Marks the process that makes it. Lives as long as the process.
class ProcessMark {
 public:
  ProcessMark() noexcept;
  ProcessMark(const ProcessMark&) = delete;
  ProcessMark& operator=(const ProcessMark&) = delete;

  /// Whether the calling process is the one that made the mark.
  bool is_here() const noexcept;

 private:
  const volatile bool* page_ = nullptr;  // memory that the kernel clears in a forked child, or null
  pid_t process_ = 0;
};

}  // namespace qattn::cuda
