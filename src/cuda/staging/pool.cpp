#include "cuda/staging/pool.hpp"

#include <sys/mman.h>

#include <mutex>
#include <utility>
#include <vector>

#include "cuda/context_guard.hpp"
#include "cuda/error.hpp"

namespace qattn::cuda::staging {
namespace {

constexpr std::size_t kKeptOfAllContexts = 8 * kKept;

// Never destroyed: at exit the driver may be gone first.
struct Pool {
  Pool() {  // what destructors put back needs no memory
    buffers.reserve(kKept);
    streams.reserve(kKeptOfAllContexts);
  }
  std::mutex mutex;
  std::vector<std::byte*> buffers;
  std::vector<std::pair<void*, cudaStream_t>> streams;  // with the context that each belongs to
};

Pool& pool() {
  static Pool& pool = *new Pool;
  return pool;
}

// Memory of the process that is page-locked, not memory of a context: should the context go, the
// buffer stays and copies merely take longer. A forked child does not get it: writing to shared
// pages would give the writer other pages than those that the device knows.
std::byte* make_buffer() noexcept {
  void* memory =
      mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  if (madvise(memory, kBufferBytes, MADV_DONTFORK) != 0 ||
      cudaHostRegister(memory, kBufferBytes, cudaHostRegisterPortable) != cudaSuccess) {
    munmap(memory, kBufferBytes);
    return nullptr;
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

PinnedBuffer::PinnedBuffer() noexcept : data_(nullptr) {
  {
    const std::lock_guard<std::mutex> lock(pool().mutex);
    if (!pool().buffers.empty()) {
      data_ = pool().buffers.back();
      pool().buffers.pop_back();
      return;
    }
  }
  data_ = make_buffer();
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(pool().mutex);
    if (pool().buffers.size() < kKept) {
      pool().buffers.push_back(data_);
      return;
    }
  }
  static_cast<void>(cudaHostUnregister(data_));
  munmap(data_, kBufferBytes);
}

PooledStream::PooledStream() : context_(current_context()) {
  {
    const std::lock_guard<std::mutex> lock(pool().mutex);
    auto& streams = pool().streams;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (streams[i].first != context_) continue;
      stream_ = streams[i].second;
      streams.erase(streams.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
  }
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
}

PooledStream::~PooledStream() {
  {
    const std::lock_guard<std::mutex> lock(pool().mutex);
    auto& streams = pool().streams;
    std::size_t kept = 0;
    for (const auto& entry : streams) kept += entry.first == context_ ? 1 : 0;
    if (kept < kKept && streams.size() < kKeptOfAllContexts) {
      streams.emplace_back(context_, stream_);
      return;
    }
  }
  static_cast<void>(cudaStreamDestroy(stream_));
}

Event::Event() {
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync),
        "creating an event");
}

}  // namespace qattn::cuda::staging
