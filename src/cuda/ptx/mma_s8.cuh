// mma.sync.m16n8k32 for 8-bit integers (PTX ISA, "Matrix Fragments for mma.m16n8k32").
//
// With g = lane / 4 and t = lane % 4 a thread holds, four bytes a register,
//   a[0], a[1]: rows g and g + 8, columns 4t..4t+3;  a[2], a[3]: the same rows, columns 16+4t..
//   b[0], b[1]: column g, rows 4t..4t+3 and 16+4t..
//   d[0], d[1]: row g, columns 2t and 2t+1;  d[2], d[3]: row g + 8.
#pragma once

#include <cstdint>

namespace qattn::cuda::ptx {

/// d = a * b + c with signed a and b; sums wrap like int32.
__device__ __forceinline__ void mma_m16n8k32_s8_s8(std::int32_t (&d)[4], const std::uint32_t* a,
                                                   std::uint32_t b0, std::uint32_t b1,
                                                   const std::int32_t* c) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
}

/// d = a * b + c with unsigned a and signed b; sums wrap like int32.
__device__ __forceinline__ void mma_m16n8k32_u8_s8(std::int32_t (&d)[4], const std::uint32_t* a,
                                                   std::uint32_t b0, std::uint32_t b1,
                                                   const std::int32_t* c) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
}

/// d += a * b with unsigned a and signed b; sums wrap like int32.
__device__ __forceinline__ void mma_m16n8k32_u8_s8(std::int32_t (&d)[4], const std::uint32_t* a,
                                                   std::uint32_t b0, std::uint32_t b1) {
  mma_m16n8k32_u8_s8(d, a, b0, b1, d);
}

/// d += a * b with signed a and unsigned b; sums wrap like int32.
__device__ __forceinline__ void mma_m16n8k32_s8_u8(std::int32_t (&d)[4],
                                                   const std::uint32_t (&a)[4], std::uint32_t b0,
                                                   std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace qattn::cuda::ptx
