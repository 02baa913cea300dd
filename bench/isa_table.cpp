#include "isa_table.hpp"

#include <algorithm>
#include <string>
#include <type_traits>

#include "cpu/tile_permission.hpp"
#include "qattn/introspect.hpp"

// Lines for other processors vanish.
#if defined(__x86_64__)
#define QATTN_BENCH_ON_x86_64(...) __VA_ARGS__
#else
#define QATTN_BENCH_ON_x86_64(...)
#endif
#define QATTN_BENCH_ON_any(...) __VA_ARGS__

namespace qattn::bench {

namespace {

using Function_ceiling = std::remove_pointer_t<CeilingFunction>;
using Function_read = std::remove_pointer_t<ReadFunction>;
using Function_peer = std::remove_pointer_t<PeerFunction>;

}  // namespace

#define QATTN_BENCH_OBJECT(kind, row, variant, processor, flags) \
  QATTN_BENCH_ON_##processor(extern "C" Function_##kind qattn_bench_##row##_##variant;)
#include "isa.inc"
#undef QATTN_BENCH_OBJECT

namespace {

#define QATTN_BENCH_OBJECT(kind, row, variant, processor, flags) \
  QATTN_BENCH_ON_##processor(                                    \
      {#row, core::features_from_flags(flags), &qattn_bench_##row##_##variant}, )
constexpr IsaEntry kTable[] = {
#include "isa.inc"
};
#undef QATTN_BENCH_OBJECT

core::FeatureSet machine_features() {
  core::FeatureSet have;
#if defined(__x86_64__)
  have = have.with(core::Feature::sse2);  // part of the architecture
#endif
  for (const std::string& name : machine_info().cpu_features) {
    const auto* found = std::find(core::kFeatureNames.begin(), core::kFeatureNames.end(), name);
    if (found != core::kFeatureNames.end()) {
      have = have.with(static_cast<core::Feature>(found - core::kFeatureNames.begin()));
    }
  }
  return have;
}

}  // namespace

std::span<const IsaEntry> isa_table() { return kTable; }

bool granted(core::FeatureSet needs) {
  static const core::FeatureSet have = machine_features();
  if (!have.contains(needs)) return false;
  return !needs.has(core::Feature::amx_tile) || !cpu::request_tile_permission().refused;
}

}  // namespace qattn::bench
