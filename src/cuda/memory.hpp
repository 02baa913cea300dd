// Stream-ordered device memory for the length of a call.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace qattn::cuda {

/// Memory from the library's own pool of the current device: the device's default pool, which is
/// the caller's, is never touched. Freed on the same stream. Throws Error(out_of_memory | cuda).
class StreamMemory {
 public:
  StreamMemory(int ordinal, cudaStream_t stream, std::size_t bytes);
  ~StreamMemory();
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;

  /// 256-byte aligned.
  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

 private:
  cudaStream_t stream_;
  void* data_ = nullptr;
};

}  // namespace qattn::cuda
