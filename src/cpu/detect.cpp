#include "cpu/detect.hpp"

#include "cpu/tile_permission.hpp"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstring>
#endif

namespace qattn::cpu {
namespace {

using core::DeviceFeatures;
using core::Feature;
using core::FeatureSet;

constexpr bool bit(std::uint32_t word, int index) { return (word >> index & 1U) != 0; }

// State components of XCR0 (Intel SDM vol. 1, 13.3) that the OS must save for each register file.
constexpr std::uint64_t kAvxState = 0x6;      // XMM, upper halves of YMM
constexpr std::uint64_t kAvx512State = 0xE6;  // and opmask, upper halves of ZMM0-15, ZMM16-31
constexpr std::uint64_t kAmxState = 0x60000;  // TILECFG, TILEDATA

constexpr bool saves(std::uint64_t xcr0, std::uint64_t state) { return (xcr0 & state) == state; }

// Whether palette 1 is what the kernels configure (Intel SDM vol. 2, CPUID leaf 1DH). Some virtual
// machines advertise AMX and list no palette.
constexpr bool has_tile_palette(const CpuidLeaves& leaves) {
  constexpr std::uint32_t kTotalBytes = 8192;
  constexpr std::uint32_t kTileBytes = 1024;
  constexpr std::uint32_t kRowBytes = 64;
  constexpr std::uint32_t kTiles = 8;
  constexpr std::uint32_t kRows = 16;
  return leaves.max_leaf >= 0x1D && leaves.leaf1d_eax >= 1 &&
         leaves.leaf1d_1_eax == (kTileBytes << 16 | kTotalBytes) &&
         leaves.leaf1d_1_ebx == (kTiles << 16 | kRowBytes) &&
         (leaves.leaf1d_1_ecx & 0xFFFF) == kRows;
}

// What keeps AMX from being used on a processor that advertises it; empty if nothing does.
constexpr std::string_view amx_fault(const CpuidLeaves& leaves) {
  if (!saves(leaves.xcr0, kAmxState)) {
    return "the operating system does not save AMX tile registers (XCR0)";
  }
  if (!has_tile_palette(leaves)) {
    return "the processor advertises AMX without the palette of 8 tiles of 16 rows of 64 bytes "
           "(CPUID leaf 0x1D)";
  }
  if (!saves(leaves.supported_state, kAmxState)) {
    return "the operating system gives nobody the permission to use AMX tile registers "
           "(arch_prctl)";
  }
  return {};
}

// The same with AMX withheld.
DeviceFeatures withhold_amx(const DeviceFeatures& features, std::string_view reason) noexcept {
  const FeatureSet have = features.have.without(Feature::amx_tile).without(Feature::amx_int8);
  return {have, features.have.missing_from(have), reason};
}

FeatureSet granted_features(const CpuidLeaves& leaves) noexcept {
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
  grant(Feature::amx_tile, bit(leaves.leaf7_edx, 24));
  grant(Feature::amx_int8, have.has(Feature::amx_tile) && bit(leaves.leaf7_edx, 25));
  return have;
}

}  // namespace

DeviceFeatures features_from_cpuid(const CpuidLeaves& leaves) noexcept {
  const DeviceFeatures features{granted_features(leaves), {}, {}};
  const std::string_view fault = amx_fault(leaves);
  const bool advertised = features.have.has(Feature::amx_tile);
  return advertised && !fault.empty() ? withhold_amx(features, fault) : features;
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
  if (leaves.max_leaf >= 0x1D) {
    __cpuid_count(0x1D, 0, leaves.leaf1d_eax, ebx, ecx, edx);
    __cpuid_count(0x1D, 1, leaves.leaf1d_1_eax, leaves.leaf1d_1_ebx, leaves.leaf1d_1_ecx, edx);
  }
  constexpr int kOsxsave = 27;  // the OS has enabled XSAVE: XGETBV does not fault
  if (bit(leaves.leaf1_ecx, kOsxsave)) leaves.xcr0 = read_xcr0();
  constexpr int kAmxTile = 24;  // elsewhere Linux is not troubled with the question
  if (bit(leaves.leaf7_edx, kAmxTile)) leaves.supported_state = supported_state();
  return leaves;
}

DeviceFeatures read_features() noexcept { return features_from_cpuid(read_leaves()); }

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

DeviceFeatures read_features() noexcept { return {}; }

}  // namespace

std::string cpu_name() {
#if defined(__aarch64__)
  return "aarch64";
#else
  return "unknown processor";
#endif
}

#endif

namespace {

DeviceFeatures features_given(const TilePermission& permission) noexcept {
  static const DeviceFeatures of_machine = read_features();
  return permission.refused && of_machine.have.has(Feature::amx_tile)
             ? withhold_amx(of_machine, permission.reason)
             : of_machine;
}

}  // namespace

DeviceFeatures features() noexcept { return features_given(tile_permission()); }

DeviceFeatures features_with_tile_permission() { return features_given(request_tile_permission()); }

}  // namespace qattn::cpu
