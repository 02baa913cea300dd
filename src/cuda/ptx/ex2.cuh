// ex2.approx.ftz: 2^x, relative error at most 2^-22 (PTX ISA).
#pragma once

namespace qattn::cuda::ptx {

/// 2^x; exactly 1 at 0, exactly 0 at -infinity and below -126, never NaN for other than NaN.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace qattn::cuda::ptx
