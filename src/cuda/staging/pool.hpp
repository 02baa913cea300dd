// What copying to and from the device costs time to make, kept between calls: page-locked buffers
// and streams.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace qattn::cuda::staging {

/// Bytes of a page-locked buffer: some 40 us on the bus, so that what starting and waiting cost is
/// little, and small enough that it is still in a cache when the bus or the processor takes it.
inline constexpr std::size_t kBufferBytes = 2U << 20U;
/// Buffers, and streams of a context, that are kept; calls at the same time make more.
inline constexpr std::size_t kKept = 8;

/// A page-locked buffer from the pool, made where that is empty.
class PinnedBuffer {
 public:
  PinnedBuffer() noexcept;
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  /// Null where none can be had.
  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_;
};

/// A stream of the current context that waits for no other one, from the pool, made where that is
/// empty. Whoever takes it leaves no work on it. Throws Error(cuda).
class PooledStream {
 public:
  PooledStream();
  ~PooledStream();
  PooledStream(const PooledStream&) = delete;
  PooledStream& operator=(const PooledStream&) = delete;

  cudaStream_t get() const noexcept { return stream_; }

 private:
  void* context_;
  cudaStream_t stream_ = nullptr;
};

/// An event whose waiters sleep.
class Event {
 public:
  Event();
  ~Event() { static_cast<void>(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  cudaEvent_t get() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace qattn::cuda::staging
