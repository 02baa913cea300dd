// prmt: picks any four bytes of two registers.
#pragma once

#include <cuda/ptx>

#include <cstdint>

namespace qattn::cuda::ptx {

/// Byte i of the result is byte (selector >> 4 * i) & 7 of b:a.
__device__ __forceinline__ std::uint32_t prmt(std::uint32_t a, std::uint32_t b,
                                              std::uint32_t selector) {
  return ::cuda::ptx::prmt(a, b, selector);
}

}  // namespace qattn::cuda::ptx
