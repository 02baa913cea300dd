// st.shared by shared-window address.
#pragma once

#include <cstdint>

namespace qattn::cuda::ptx {

/// Stores 4 bytes, 4-byte aligned.
__device__ __forceinline__ void st_shared_4(std::uint32_t to, std::uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

/// Stores 16 bytes, 16-byte aligned.
__device__ __forceinline__ void st_shared_16(std::uint32_t to, const std::uint32_t (&words)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}

}  // namespace qattn::cuda::ptx
