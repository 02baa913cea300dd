#include "cpu/detect.hpp"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstring>
#endif

namespace qattn::cpu {
namespace {

using core::Feature;
using core::FeatureSet;

constexpr bool bit(std::uint32_t word, int index) { return (word >> index & 1U) != 0; }

// State components of XCR0 (Intel SDM vol. 1, 13.3) that the OS must save for each register file.
constexpr std::uint64_t kAvxState = 0x6;      // XMM, upper halves of YMM
constexpr std::uint64_t kAvx512State = 0xE6;  // and opmask, upper halves of ZMM0-15, ZMM16-31
constexpr std::uint64_t kAmxState = 0x60000;  // TILECFG, TILEDATA

constexpr bool saves(std::uint64_t xcr0, std::uint64_t state) { return (xcr0 & state) == state; }

}  // namespace

FeatureSet features_from_cpuid(const CpuidLeaves& leaves) noexcept {
  FeatureSet have;
  const auto grant = [&have](Feature feature, bool granted) {
    if (granted) have = have.with(feature);
  };
  grant(Feature::sse2, bit(leaves.leaf1_edx, 26));

  const bool avx_state = saves(leaves.xcr0, kAvxState);
  grant(Feature::avx, avx_state && bit(leaves.leaf1_ecx, 28));
  if (!have.has(Feature::avx)) return have;
  grant(Feature::fma, bit(leaves.leaf1_ecx, 12));
  grant(Feature::f16c, bit(leaves.leaf1_ecx, 29));
  if (leaves.max_leaf < 7) return have;
  grant(Feature::avx2, bit(leaves.leaf7_ebx, 5));
  grant(Feature::avxvnni, have.has(Feature::avx2) && bit(leaves.leaf7_1_eax, 4));

  const bool avx512_state = saves(leaves.xcr0, kAvx512State);
  grant(Feature::avx512f, avx512_state && bit(leaves.leaf7_ebx, 16));
  if (have.has(Feature::avx512f)) {
    grant(Feature::avx512dq, bit(leaves.leaf7_ebx, 17));
    grant(Feature::avx512bw, bit(leaves.leaf7_ebx, 30));
    grant(Feature::avx512vl, bit(leaves.leaf7_ebx, 31));
    grant(Feature::avx512vnni, bit(leaves.leaf7_ecx, 11));
  }
  const bool amx_state = saves(leaves.xcr0, kAmxState);
  grant(Feature::amx_tile, amx_state && bit(leaves.leaf7_edx, 24));
  grant(Feature::amx_int8, have.has(Feature::amx_tile) && bit(leaves.leaf7_edx, 25));
  return have;
}

#if defined(__x86_64__)

namespace {

std::uint64_t read_xcr0() noexcept {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

CpuidLeaves read_leaves() noexcept {
  CpuidLeaves leaves;
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
  leaves.max_leaf = __get_cpuid_max(0, nullptr);
  if (leaves.max_leaf >= 1) {
    __cpuid(1, eax, ebx, leaves.leaf1_ecx, leaves.leaf1_edx);
  }
  if (leaves.max_leaf >= 7) {
    __cpuid_count(7, 0, eax, leaves.leaf7_ebx, leaves.leaf7_ecx, leaves.leaf7_edx);
    if (eax >= 1) __cpuid_count(7, 1, leaves.leaf7_1_eax, ebx, ecx, edx);
  }
  constexpr int kOsxsave = 27;  // the OS has enabled XSAVE: XGETBV does not fault
  if (bit(leaves.leaf1_ecx, kOsxsave)) leaves.xcr0 = read_xcr0();
  return leaves;
}

FeatureSet read_features() noexcept {
  FeatureSet have = features_from_cpuid(read_leaves());
  // Using the tile registers needs a permission from the OS that no kernel of this build asks for.
  have = have.without(Feature::amx_tile).without(Feature::amx_int8);
  return have;
}

}  // namespace

std::string cpu_name() {
  constexpr std::uint32_t kBrandLeaf = 0x80000002;
  const std::uint32_t last_leaf = __get_cpuid_max(0x80000000, nullptr);
  if (last_leaf < kBrandLeaf + 2) return "x86-64";
  char brand[49] = {};
  for (std::uint32_t i = 0; i < 3; ++i) {
    std::uint32_t words[4];
    __cpuid(kBrandLeaf + i, words[0], words[1], words[2], words[3]);
    std::memcpy(brand + 16 * i, words, sizeof words);
  }
  return brand;
}

#else

namespace {

FeatureSet read_features() noexcept { return {}; }

}  // namespace

std::string cpu_name() {
#if defined(__aarch64__)
  return "aarch64";
#else
  return "unknown processor";
#endif
}

#endif

FeatureSet features() noexcept {
  static const FeatureSet have = read_features();
  return have;
}

}  // namespace qattn::cpu
