// stmatrix: four 8x8 matrices of 16-bit elements from the registers of a warp to shared memory.
#pragma once

#include <cstdint>

namespace qattn::cuda::ptx {

/// The inverse of ldmatrix_x4: `address` of lane i is row i % 8 of matrix i / 8; lane l gives
/// elements 2 * (l % 4) and + 1 of row l / 4 of matrix m in r[m].
__device__ __forceinline__ void stmatrix_x4(std::uint32_t address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

}  // namespace qattn::cuda::ptx
