// Sets of machine features: what a kernel needs, what a device has.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace qattn::core {

/// Features that a kernel may need. CPU features mean that the CPU and the OS both grant it.
enum class Feature : std::uint8_t {
  sse2,
  avx,
  avx2,
  fma,
  f16c,
  avxvnni,
  avx512f,
  avx512bw,
  avx512dq,
  avx512vl,
  avx512vnni,
  amx_tile,
  amx_int8,
  cuda_sm80,   // capability 8.0 or later: runs sm80 machine code or its PTX
  cuda_sm90a,  // capability 9.0 exactly: architecture-specific code runs nowhere else
};
inline constexpr int kFeatureCount = 15;

/// Names as compilers and people write them, in the order of Feature.
inline constexpr std::array<std::string_view, kFeatureCount> kFeatureNames = {
    "sse2",       "avx",      "avx2",     "fma",       "f16c",
    "avxvnni",    "avx512f",  "avx512bw", "avx512dq",  "avx512vl",
    "avx512vnni", "amx-tile", "amx-int8", "cuda-sm80", "cuda-sm90a"};

/// A set of features.
class FeatureSet {
 public:
  constexpr FeatureSet() noexcept = default;
  constexpr FeatureSet with(Feature feature) const noexcept {
    FeatureSet result = *this;
    result.bits_ |= bit(feature);
    return result;
  }
  constexpr FeatureSet without(Feature feature) const noexcept {
    FeatureSet result = *this;
    result.bits_ &= ~bit(feature);
    return result;
  }
  constexpr bool has(Feature feature) const noexcept { return (bits_ & bit(feature)) != 0; }
  constexpr bool contains(FeatureSet other) const noexcept { return (other.bits_ & ~bits_) == 0; }
  /// Members of this set that `have` lacks.
  constexpr FeatureSet missing_from(FeatureSet have) const noexcept {
    FeatureSet result;
    result.bits_ = bits_ & ~have.bits_;
    return result;
  }
  constexpr bool empty() const noexcept { return bits_ == 0; }
  friend constexpr bool operator==(FeatureSet, FeatureSet) noexcept = default;
  /// "avx2, fma".
  std::string to_string() const;

 private:
  static constexpr std::uint64_t bit(Feature feature) noexcept {
    return std::uint64_t{1} << static_cast<int>(feature);
  }
  std::uint64_t bits_ = 0;
};

/// What a device grants.
struct DeviceFeatures {
  FeatureSet have;
  FeatureSet withheld;      // the hardware has them, and they cannot be used all the same
  std::string_view reason;  // why, for a person; outlives every use of the features
};

/// The features that code compiled with `flags` ("-mavx2 -mfma") may use, those included that a
/// flag implies. A flag that is not known here does not compile (in a constant expression) or
/// throws.
constexpr FeatureSet features_from_flags(std::string_view flags) {
  FeatureSet result;
  while (!flags.empty()) {
    const std::size_t end = flags.find(' ');
    const std::string_view flag = flags.substr(0, end);
    flags = end == std::string_view::npos ? std::string_view{} : flags.substr(end + 1);
    if (flag.empty()) continue;
    bool known = false;
    for (int i = 0; i < kFeatureCount; ++i) {
      if (flag.substr(0, 2) == "-m" && flag.substr(2) == kFeatureNames[i]) {
        result = result.with(static_cast<Feature>(i));
        known = true;
      }
    }
    if (!known) throw "features_from_flags: this compiler flag names no known feature";
  }
  // What each flag turns on in GCC and Clang besides its own extension.
  for (Feature f : {Feature::avx512bw, Feature::avx512dq, Feature::avx512vl, Feature::avx512vnni}) {
    if (result.has(f)) result = result.with(Feature::avx512f);
  }
  for (Feature f : {Feature::avx512f, Feature::avxvnni}) {
    if (result.has(f)) result = result.with(Feature::avx2);
  }
  if (result.has(Feature::amx_int8)) result = result.with(Feature::amx_tile);
  for (Feature f : {Feature::avx2, Feature::fma, Feature::f16c}) {
    if (result.has(f)) result = result.with(Feature::avx);
  }
  if (result.has(Feature::avx)) result = result.with(Feature::sse2);
  return result;
}

}  // namespace qattn::core
