// ldmatrix: four 8x8 matrices of 16-bit elements from shared memory into the registers of a warp.
#pragma once

#include <cstdint>

namespace qattn::cuda::ptx {

/// `address` (shared window) of lane i is row i % 8 of matrix i / 8, 16 bytes, 16-byte aligned.
/// Lane l then holds in r[m] elements 2 * (l % 4) and + 1 of row l / 4 of matrix m.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// As ldmatrix_x4, transposed: lane l holds element l / 4 of rows 2 * (l % 4) and + 1.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

}  // namespace qattn::cuda::ptx
