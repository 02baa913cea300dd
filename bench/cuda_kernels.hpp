// The benchmark's own CUDA kernels, as functions that put work on the legacy default stream unless
// they are given another.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace qattn::bench {

/// A square problem without grouped heads on contiguous device tensors.
struct PeerProblem {
  const std::int8_t* q = nullptr;
  const std::int8_t* k = nullptr;
  const std::int8_t* v = nullptr;
  const float* q_scale = nullptr;
  const float* k_scale = nullptr;
  const float* v_scale = nullptr;
  float* out = nullptr;
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  bool causal = true;
};

void launch_one_thread_per_query(const PeerProblem& problem);

/// Reads `bytes` (a multiple of 16) of device memory; `sink` is one word of device memory.
void launch_device_read(const void* data, std::int64_t bytes, std::uint32_t* sink);

/// Multiplies int8 in shared memory with wgmma, on a device of capability 9.0. Returns the
/// operations (a multiply and its add are two); `sink` is one word of device memory.
double launch_wgmma_s8(std::int32_t* sink);

/// One block of a kernel that does nothing.
void launch_nothing(cudaStream_t stream);

}  // namespace qattn::bench
