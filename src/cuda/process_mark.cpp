#include "cuda/process_mark.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace qattn::cuda {

ProcessMark::ProcessMark() noexcept : process_(getpid()) {
#ifdef MADV_WIPEONFORK  // Linux 4.14
  const long bytes = sysconf(_SC_PAGESIZE);
  if (bytes <= 0) return;
  const auto size = static_cast<std::size_t>(bytes);
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (madvise(page, size, MADV_WIPEONFORK) != 0) {
    munmap(page, size);
    return;
  }
  auto* mark = static_cast<bool*>(page);
  *mark = true;
  page_ = mark;
#endif
}

bool ProcessMark::is_here() const noexcept {
  return page_ != nullptr ? *page_ : getpid() == process_;
}

}  // namespace qattn::cuda
