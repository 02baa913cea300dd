// What both ways of staging have in common.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "cuda/error.hpp"
#include "cuda/staging/plan.hpp"

namespace qattn::cuda::staging {

/// Waits for a stream before the scope's memory goes: copies from and to it may be in flight on an
/// error path.
class WaitAtExit {
 public:
  explicit WaitAtExit(cudaStream_t stream) noexcept : stream_(stream) {}
  ~WaitAtExit() {
    if (!done_) static_cast<void>(cudaStreamSynchronize(stream_));
  }
  WaitAtExit(const WaitAtExit&) = delete;
  WaitAtExit& operator=(const WaitAtExit&) = delete;
  void wait(const char* what) {
    done_ = true;
    check(cudaStreamSynchronize(stream_), what);
  }

 private:
  cudaStream_t stream_;
  bool done_ = false;
};

/// Sends bytes to the device.
inline void send(const void* from, std::byte* to, std::int64_t bytes, cudaStream_t stream,
                 const char* what) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream),
        what);
}

/// Fetches bytes from the device.
inline void fetch(const std::byte* from, void* to, std::int64_t bytes, cudaStream_t stream,
                  const char* what) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, stream),
        what);
}

/// Sends the scale arrays of a plan.
inline void send_scales(const Plan& plan, std::byte* memory, cudaStream_t stream) {
  for (const StagedTensor& scale : plan.scales()) {
    send(scale.rows.data, memory + scale.offset, scale.rows.bytes(), stream, scale.what);
  }
}

}  // namespace qattn::cuda::staging
