// The suite's own look at the processor: what detection claims is judged by it.
#pragma once

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>

namespace qattn::test {

/// Whether CPUID and XCR0 grant what the CPU tier of this name is compiled for; empty for names
/// that it does not know.
inline std::optional<bool> machine_grants(const std::string& kernel) {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  if (kernel == "cpu/scalar") return true;
  __get_cpuid(1, &a, &b, &c, &d);
  const bool fma = (c & bit_FMA) != 0;
  std::uint32_t xcr0 = 0, high = 0;
  if ((c & bit_OSXSAVE) != 0) __asm__("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) b = c = 0;
  const bool avx2 = fma && (b & bit_AVX2) != 0 && (xcr0 & 0x6) == 0x6;
  const std::uint32_t needed = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  const bool avx512 = avx2 && (b & needed) == needed && (xcr0 & 0xE6) == 0xE6;
  const bool vnni = avx512 && (c & bit_AVX512VNNI) != 0;
  if (kernel == "cpu/avx2") return avx2;
  if (kernel == "cpu/avx512") return avx512;
  if (kernel == "cpu/avx512vnni") return vnni;
  if (kernel == "cpu/amx_int8") {
    constexpr std::uint32_t kAmx = 1U << 24 | 1U << 25;
    constexpr std::uint32_t kTileState = 1U << 17 | 1U << 18;
    const bool advertised = vnni && (d & kAmx) == kAmx && (xcr0 & kTileState) == kTileState;
    if (__get_cpuid_count(0x1D, 0, &a, &b, &c, &d) == 0 || a < 1) return false;
    __get_cpuid_count(0x1D, 1, &a, &b, &c, &d);
    std::uint64_t supported = 0;
    constexpr long kGetSupported = 0x1021;  // ARCH_GET_XCOMP_SUPP
    const bool answered = syscall(SYS_arch_prctl, kGetSupported, &supported) == 0;
    return advertised && a == 0x04002000 && b == 0x00080040 && c == 16 && answered &&
           (supported & kTileState) == kTileState;
  }
  if (kernel == "cpu/avxvnni") {
    constexpr std::uint32_t kAvxVnni = 1U << 4;
    const bool has_subleaf = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0;
    return avx2 && has_subleaf && (a & kAvxVnni) != 0;
  }
  return std::nullopt;
}

}  // namespace qattn::test

#endif
