// cvt: two float32 to a pair of 16-bit floating-point values (capability 8.0), rounded to nearest,
// ties to even, subnormal results included; past the largest value to infinity, every NaN to
// 0x7FFF.
#pragma once

#include <cstdint>

namespace qattn::cuda::ptx {

/// Two float16; `low` in the low half.
__device__ __forceinline__ std::uint32_t cvt_f16x2(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Two bfloat16; `low` in the low half.
__device__ __forceinline__ std::uint32_t cvt_bf16x2(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace qattn::cuda::ptx
