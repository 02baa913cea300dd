// cp.async: copies from global to shared memory that do not pass through registers.
#pragma once

#include <cstdint>

namespace qattn::cuda::ptx {

/// Copies `valid` (0 to 16) bytes and fills the rest of 16 with zeros. Both addresses are 16-byte
/// aligned; no byte after the valid ones is read, none at all where `valid` is 0. Past L1: a tile
/// is read once per block.
__device__ __forceinline__ void cp_async_16(std::uint32_t to, const void* from, int valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid)
               : "memory");
}

/// The same for 16 valid bytes.
__device__ __forceinline__ void cp_async_whole_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/// The same of 16 bytes that all exist, or nothing at all, without a branch.
__device__ __forceinline__ void cp_async_16_if(bool wanted, std::uint32_t to, const void* from) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %0, 0;\n"
      "@p cp.async.cg.shared.global [%1], [%2], 16;\n"
      "}\n" ::"r"(static_cast<int>(wanted)),
      "r"(to), "l"(from)
      : "memory");
}

/// The same for 4 bytes, 4-byte aligned.
__device__ __forceinline__ void cp_async_4(std::uint32_t to, const void* from, int valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid)
               : "memory");
}

/// Closes the group of this thread's copies since the last commit; an empty group counts too.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most `kPending` of this thread's latest groups are unfinished.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Waits for all of this thread's copies, committed or not.
__device__ __forceinline__ void cp_async_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace qattn::cuda::ptx
