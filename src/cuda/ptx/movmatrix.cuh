// movmatrix: transposes an 8x8 matrix of 16-bit elements in the registers of a warp.
#pragma once

#include <cstdint>

namespace qattn::cuda::ptx {

/// Lane l gives elements 2 * (l % 4) and + 1 of row l / 4 and gets those of column l / 4.
__device__ __forceinline__ std::uint32_t movmatrix_trans(std::uint32_t a) {
  std::uint32_t d;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
  return d;
}

}  // namespace qattn::cuda::ptx
