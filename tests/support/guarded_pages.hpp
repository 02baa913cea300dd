// Memory between unreadable pages: touching one byte too many ends the program.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <new>

namespace qattn::test {

/// `size` elements that start right after, or end right before, a page without access.
template <typename T>
class GuardedPages {
 public:
  enum class Edge { front, back };

  GuardedPages(std::size_t size, Edge edge) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = size * sizeof(T);
    inner_ = (bytes + page - 1) / page * page;
    mapped_ = inner_ + 2 * page;
    void* memory =
        mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(memory);
    if (inner_ > 0) mprotect(base_ + page, inner_, PROT_READ | PROT_WRITE);
    data_ =
        reinterpret_cast<T*>(edge == Edge::front ? base_ + page : base_ + page + inner_ - bytes);
  }
  /// A copy of `from` that later writes fault on.
  GuardedPages(const T* from, std::size_t size, Edge edge) : GuardedPages(size, edge) {
    if (size == 0) return;
    std::memcpy(data_, from, size * sizeof(T));
    mprotect(base_ + sysconf(_SC_PAGESIZE), inner_, PROT_READ);
  }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;
  ~GuardedPages() { munmap(base_, mapped_); }

  T* data() { return data_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t inner_ = 0;
  std::size_t mapped_ = 0;
  T* data_ = nullptr;
};

}  // namespace qattn::test
