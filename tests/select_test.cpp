// Selection: a pure function of table, features, problem and forced name; detection from CPUID.
#include "dispatch/select.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cpu/detect.hpp"
#include "dispatch/table.hpp"
#include "support/cpuid.hpp"
#include "support/kernel_param.hpp"

namespace qattn::test {
namespace {

using core::Feature;
using core::FeatureSet;
using core::Kernel;
using dispatch::Selection;

void run_nothing(const core::Problem&, const core::RunContext&) {}

Kernel fake(const char* name, FeatureSet needs, Device::Kind device = Device::Kind::cpu) {
  Kernel kernel;
  kernel.name = name;
  kernel.device = device;
  kernel.needs = needs;
  kernel.run = run_nothing;
  return kernel;
}

// gpu/b, cpu/wide (limited to head_dim 64), cpu/fast (a soft cap too), cpu/absent, cpu/plain,
// other/slow (only when forced).
std::array<Kernel, 6> fake_table() {
  std::array<Kernel, 6> table = {
      fake("gpu/b", FeatureSet().with(Feature::cuda_sm80), Device::Kind::cuda),
      fake("cpu/wide", FeatureSet().with(Feature::avx2).with(Feature::avx512f)),
      fake("cpu/fast", FeatureSet().with(Feature::avx2)),
      fake("cpu/absent", FeatureSet()),
      fake("cpu/plain", FeatureSet()),
      fake("other/slow", FeatureSet())};
  table[1].limits.head_dim_max = 64;
  table[2].limits.extras = core::ExtraSet().with(core::Extra::soft_cap);
  table[3].run = nullptr;
  table[3].absent_reason = "left out of this build";
  table[5].automatic = false;
  return table;
}

core::Problem problem_of(std::int64_t head_dim) {
  core::Problem problem;
  problem.head_dim = head_dim;
  return problem;
}

class Select : public testing::Test {
 protected:
  std::string pick(FeatureSet have, const core::Problem* problem = nullptr,
                   std::string_view forced = {}, Device::Kind device = Device::Kind::cpu) {
    selection_ = {table_, device, have, problem, forced};
    const Kernel* kernel = dispatch::select(selection_);
    const Explanation explanation = dispatch::explain(selection_);
    EXPECT_EQ(explanation.kernel, kernel == nullptr ? "" : kernel->name);
    EXPECT_EQ(explanation.error.empty(), kernel != nullptr);
    for (const KernelStatus& status : explanation.passed_over) {
      EXPECT_NE(status.reason, "") << status.name << " was passed over without a reason";
    }
    return explanation.kernel;
  }
  // Reason for which a kernel was passed over.
  std::string reason(const std::string& name) {
    for (const KernelStatus& status : dispatch::explain(selection_).passed_over) {
      if (status.name == name) return status.reason;
    }
    return "not passed over";
  }
  ErrorCode error_code() {
    try {
      dispatch::throw_no_kernel(selection_);
    } catch (const Error& error) {
      EXPECT_EQ(dispatch::explain(selection_).error, error.what());
      return error.code();
    }
  }

  std::array<Kernel, 6> table_ = fake_table();
  Selection selection_;
  FeatureSet all_ =
      FeatureSet().with(Feature::avx2).with(Feature::avx512f).with(Feature::cuda_sm80);
};

TEST_F(Select, FirstUsableOfTheDevice) {
  EXPECT_EQ(pick(all_), "cpu/wide");
  EXPECT_EQ(pick(all_, nullptr, {}, Device::Kind::cuda), "gpu/b");
}

TEST_F(Select, MissingFeaturesAreNamed) {
  EXPECT_EQ(pick(FeatureSet().with(Feature::avx2)), "cpu/fast");
  EXPECT_NE(reason("cpu/wide").find("avx512f"), std::string::npos) << reason("cpu/wide");
  EXPECT_EQ(reason("cpu/wide").find("avx2,"), std::string::npos) << "avx2 is there";
  EXPECT_EQ(pick(FeatureSet()), "cpu/plain");
  EXPECT_EQ(reason("cpu/absent"), "left out of this build");
}

TEST_F(Select, WithheldFeaturesGiveTheirReason) {
  table_[1].needs = table_[1].needs.with(Feature::amx_tile);
  selection_ = {table_, Device::Kind::cpu, all_, nullptr, {}};
  selection_.withheld = FeatureSet().with(Feature::amx_tile);
  selection_.withheld_reason = "permission refused";
  ASSERT_NE(dispatch::select(selection_), nullptr);
  EXPECT_EQ(dispatch::select(selection_)->name, "cpu/fast");
  EXPECT_EQ(reason("cpu/wide"), "permission refused");
  selection_.forced = "cpu/wide";
  EXPECT_EQ(dispatch::select(selection_), nullptr) << "no silent fall-back";
  EXPECT_EQ(error_code(), ErrorCode::kernel_unusable);
  const std::string error = dispatch::explain(selection_).error;
  EXPECT_NE(error.find("permission refused"), std::string::npos) << error;
  selection_.have = FeatureSet();  // and what it lacks altogether counts first
  EXPECT_EQ(dispatch::refusal(table_[1], selection_), "this device lacks avx2, avx512f");
}

TEST_F(Select, LimitsAreNamed) {
  const core::Problem small = problem_of(64);
  const core::Problem large = problem_of(65);
  EXPECT_EQ(pick(all_, &small), "cpu/wide");
  EXPECT_EQ(pick(all_, &large), "cpu/fast");
  EXPECT_NE(reason("cpu/wide").find("head_dim is 65"), std::string::npos) << reason("cpu/wide");
}

TEST_F(Select, SmallProblemsPreferTheNextKernel) {
  table_[1].preferred_rows = 100;
  core::Problem problem = problem_of(64);
  problem.heads_q = 4;
  problem.heads_kv = 2;
  problem.seq_q = 50;
  EXPECT_EQ(pick(all_, &problem), "cpu/wide");
  problem.seq_q = 49;
  EXPECT_EQ(pick(all_, &problem), "cpu/fast");
  EXPECT_NE(reason("cpu/wide").find("100 rows"), std::string::npos) << reason("cpu/wide");
  EXPECT_EQ(pick(all_, &problem, "cpu/wide"), "cpu/wide") << "forced all the same";
  EXPECT_EQ(pick(all_), "cpu/wide") << "no problem in particular";
  for (Kernel& kernel : table_) kernel.preferred_rows = 1000;
  EXPECT_EQ(pick(all_, &problem), "cpu/wide") << "the best one where none is preferred";
  problem.heads_q = problem.heads_kv = 0;
  EXPECT_EQ(pick(all_, &problem), "cpu/wide") << "no rows, and no division by zero heads";
}

TEST_F(Select, ExtrasNeedAKernelThatHasThem) {
  core::Problem problem = problem_of(8);
  problem.extras = core::ExtraSet().with(core::Extra::soft_cap);
  EXPECT_EQ(pick(all_, &problem), "cpu/fast");
  EXPECT_NE(reason("cpu/wide").find("soft_cap"), std::string::npos) << reason("cpu/wide");
  EXPECT_EQ(pick(FeatureSet(), &problem), "");
  EXPECT_EQ(error_code(), ErrorCode::unsupported);
}

TEST_F(Select, ForcedOrNothing) {
  EXPECT_EQ(pick(all_, nullptr, "cpu/plain"), "cpu/plain");
  EXPECT_EQ(pick(all_, nullptr, "other/slow"), "other/slow");
  EXPECT_EQ(pick(FeatureSet(), nullptr, "cpu/fast"), "") << "no silent fall-back";
  EXPECT_EQ(error_code(), ErrorCode::kernel_unusable);
  EXPECT_EQ(pick(all_, nullptr, "cpu/absent"), "");
  EXPECT_EQ(error_code(), ErrorCode::kernel_unusable);
  EXPECT_EQ(pick(all_, nullptr, "gpu/b"), "") << "a kernel of another device";
  EXPECT_EQ(error_code(), ErrorCode::kernel_unusable);
  EXPECT_EQ(pick(all_, nullptr, "cpu/none"), "");
  EXPECT_EQ(error_code(), ErrorCode::unknown_kernel);
  const std::string error = dispatch::explain(selection_).error;
  for (const Kernel& kernel : table_) {
    EXPECT_NE(error.find(kernel.name), std::string::npos) << error;
  }
}

TEST_F(Select, TheReferenceNeverRunsUnasked) {
  for (Kernel& kernel : table_) {
    if (kernel.automatic) kernel.needs = kernel.needs.with(Feature::amx_int8);
  }
  EXPECT_EQ(pick(all_), "");
  EXPECT_EQ(error_code(), ErrorCode::unsupported);
}

TEST_F(Select, ExplanationReadsWell) {
  pick(FeatureSet().with(Feature::avx2));
  const std::string text = dispatch::explain(selection_).to_string();
  EXPECT_NE(text.find("cpu/wide"), std::string::npos) << text;
  EXPECT_NE(text.find("avx512f"), std::string::npos) << text;
  EXPECT_NE(text.find("cpu/fast"), std::string::npos) << text;
}

TEST(Table, NamesAreUniqueAndBestFirst) {
  std::set<std::string_view> names;
  for (const Kernel& kernel : dispatch::table()) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    const std::string_view prefix = kernel.name.substr(0, kernel.name.find('/'));
    EXPECT_TRUE(prefix == "cpu" || prefix == "cuda" || prefix == "reference") << kernel.name;
    EXPECT_EQ(kernel.device == Device::Kind::cuda, prefix == "cuda") << kernel.name;
    EXPECT_EQ(kernel.automatic, prefix != "reference") << kernel.name;
    EXPECT_EQ(kernel.run == nullptr, !kernel.absent_reason.empty()) << kernel.name;
    if (prefix == "cpu") {
      EXPECT_EQ(kernel.needs.empty(), kernel.name == "cpu/scalar") << kernel.name;
    }
  }
  // The kernel without needs is the last resort of its device.
  std::string_view last_cpu;
  for (const Kernel& kernel : dispatch::table()) {
    if (kernel.name.substr(0, 4) == "cpu/") last_cpu = kernel.name;
  }
  EXPECT_EQ(last_cpu, "cpu/scalar");
}

// Registers as the processors report them (only the bits that matter), with an OS that saves
// everything the processor has.
constexpr std::uint32_t kSse2 = 1U << 26;
constexpr std::uint32_t kFma = 1U << 12, kOsxsave = 1U << 27, kAvx = 1U << 28, kF16c = 1U << 29;
constexpr std::uint32_t kAvx2 = 1U << 5, kAvx512f = 1U << 16, kAvx512dq = 1U << 17;
constexpr std::uint32_t kAvx512bw = 1U << 30, kAvx512vl = 1U << 31, kAvx512vnni = 1U << 11;
constexpr std::uint32_t kAmxTile = 1U << 24, kAmxInt8 = 1U << 25, kAvxVnni = 1U << 4;
constexpr std::uint32_t kLeaf1 = kFma | kOsxsave | kAvx | kF16c;
constexpr std::uint32_t kAvx512 = kAvx2 | kAvx512f | kAvx512dq | kAvx512bw | kAvx512vl;
constexpr std::uint64_t kSseState = 0x3, kAvxState = 0x7, kAvx512State = 0xE7, kAmxState = 0x600E7;

cpu::CpuidLeaves haswell() { return {13, kLeaf1, kSse2, kAvx2, 0, 0, 0, kAvxState}; }
cpu::CpuidLeaves skylake_x() { return {22, kLeaf1, kSse2, kAvx512, 0, 0, 0, kAvx512State}; }
cpu::CpuidLeaves cascade_lake() {
  return {22, kLeaf1, kSse2, kAvx512, kAvx512vnni, 0, 0, kAvx512State};
}
cpu::CpuidLeaves alder_lake() { return {32, kLeaf1, kSse2, kAvx2, 0, 0, kAvxVnni, kAvxState}; }
cpu::CpuidLeaves zen2() { return {16, kLeaf1, kSse2, kAvx2, 0, 0, 0, kAvxState}; }
cpu::CpuidLeaves zen4() { return {16, kLeaf1, kSse2, kAvx512, kAvx512vnni, 0, 0, kAvx512State}; }
cpu::CpuidLeaves sapphire_rapids() {
  return {32,       kLeaf1,    kSse2, kAvx512,    kAvx512vnni, kAmxTile | kAmxInt8,
          kAvxVnni, kAmxState, 1,     0x04002000, 0x00080040,  16,
          kAmxState};
}

// The tiers below in the library's own table, as far as a test of these processors knows them.
std::vector<Kernel> known_tiers() {
  std::vector<Kernel> tiers;
  for (const Kernel& kernel : dispatch::table()) {
    for (const char* name : {"cpu/amx_int8", "cpu/avx512vnni", "cpu/avx512", "cpu/avxvnni",
                             "cpu/avx2", "cpu/scalar"}) {
      if (kernel.name == name) tiers.push_back(kernel);
    }
  }
  return tiers;
}

std::string tier_of(const cpu::CpuidLeaves& leaves) {
  const std::vector<Kernel> tiers = known_tiers();
  const Selection selection{
      tiers, Device::Kind::cpu, cpu::features_from_cpuid(leaves).have, nullptr, {}};
  const Kernel* kernel = dispatch::select(selection);
  return kernel == nullptr ? std::string() : std::string(kernel->name);
}

#if defined(__x86_64__)
TEST(Detection, EveryProcessorGetsItsTier) {
  EXPECT_EQ(tier_of(haswell()), "cpu/avx2");
  EXPECT_EQ(tier_of(skylake_x()), "cpu/avx512");
  EXPECT_EQ(tier_of(cascade_lake()), "cpu/avx512vnni");
  EXPECT_EQ(tier_of(alder_lake()), "cpu/avxvnni") << "AVX-VNNI is not AVX512-VNNI";
  EXPECT_EQ(tier_of(zen2()), "cpu/avx2");
  EXPECT_EQ(tier_of(zen4()), "cpu/avx512vnni");
  EXPECT_EQ(tier_of(sapphire_rapids()), "cpu/amx_int8");
}

TEST(Detection, TheOsMustSaveTheRegisters) {
  for (cpu::CpuidLeaves (*machine)() :
       {haswell, skylake_x, cascade_lake, alder_lake, zen2, zen4, sapphire_rapids}) {
    cpu::CpuidLeaves leaves = machine();
    leaves.xcr0 = 0;
    EXPECT_EQ(tier_of(leaves), "cpu/scalar") << "no XSAVE";
    leaves.xcr0 = kSseState;
    EXPECT_EQ(tier_of(leaves), "cpu/scalar") << "SSE state only";
  }
  cpu::CpuidLeaves leaves = sapphire_rapids();
  leaves.xcr0 = kAvxState;
  EXPECT_EQ(tier_of(leaves), "cpu/avxvnni") << "no AVX-512 state";
  for (const std::uint64_t lacking : {0x20U, 0x40U, 0x80U}) {
    leaves.xcr0 = kAvx512State & ~lacking;
    EXPECT_EQ(tier_of(leaves), "cpu/avxvnni") << "one of three AVX-512 states missing";
  }
}

TEST(Detection, FlagsAreNotMixedUp) {
  EXPECT_FALSE(cpu::features_from_cpuid(alder_lake()).have.has(Feature::avx512vnni));
  EXPECT_TRUE(cpu::features_from_cpuid(alder_lake()).have.has(Feature::avxvnni));
  EXPECT_FALSE(cpu::features_from_cpuid(cascade_lake()).have.has(Feature::avxvnni));
  EXPECT_TRUE(cpu::features_from_cpuid(sapphire_rapids()).have.has(Feature::amx_int8));
  cpu::CpuidLeaves old = haswell();
  old.max_leaf = 4;  // leaf 7 does not exist: what it returns means nothing
  EXPECT_EQ(tier_of(old), "cpu/scalar");
  cpu::CpuidLeaves no_fma = haswell();
  no_fma.leaf1_ecx &= ~kFma;
  EXPECT_EQ(tier_of(no_fma), "cpu/scalar") << "cpu/avx2 is compiled with -mfma";
}

// What a processor that advertises AMX gives once `spoil` has changed its registers.
void expect_amx_withheld(void (*spoil)(cpu::CpuidLeaves* leaves), const std::string& why) {
  cpu::CpuidLeaves leaves = sapphire_rapids();
  spoil(&leaves);
  const core::DeviceFeatures features = cpu::features_from_cpuid(leaves);
  EXPECT_FALSE(features.have.has(Feature::amx_tile)) << why;
  EXPECT_FALSE(features.have.has(Feature::amx_int8)) << why;
  EXPECT_TRUE(features.have.has(Feature::avx512vnni)) << why;
  EXPECT_EQ(features.withheld, FeatureSet().with(Feature::amx_tile).with(Feature::amx_int8)) << why;
  EXPECT_NE(features.reason.find(why), std::string::npos) << features.reason;
  EXPECT_EQ(tier_of(leaves), "cpu/avx512vnni") << why;
}

TEST(Detection, AmxNeedsStatePaletteAndOs) {
  const core::DeviceFeatures whole = cpu::features_from_cpuid(sapphire_rapids());
  EXPECT_TRUE(whole.withheld.empty());
  EXPECT_EQ(whole.reason, "");
  expect_amx_withheld([](cpu::CpuidLeaves* l) { l->xcr0 = kAvx512State; }, "XCR0");
  expect_amx_withheld([](cpu::CpuidLeaves* l) { l->xcr0 &= ~0x40000ULL; }, "XCR0");
  expect_amx_withheld([](cpu::CpuidLeaves* l) { l->xcr0 &= ~0x20000ULL; }, "XCR0");
  expect_amx_withheld([](cpu::CpuidLeaves* l) { l->max_leaf = 0x1C; }, "palette");
  expect_amx_withheld([](cpu::CpuidLeaves* l) { l->leaf1d_eax = 0; }, "palette");
  expect_amx_withheld([](cpu::CpuidLeaves* l) { l->leaf1d_1_eax = 0x04001000; }, "palette");
  expect_amx_withheld([](cpu::CpuidLeaves* l) { l->leaf1d_1_eax = 0x02002000; }, "palette");
  expect_amx_withheld([](cpu::CpuidLeaves* l) { l->leaf1d_1_ebx = 0x00080020; }, "palette");
  expect_amx_withheld([](cpu::CpuidLeaves* l) { l->leaf1d_1_ebx = 0x00040040; }, "palette");
  expect_amx_withheld([](cpu::CpuidLeaves* l) { l->leaf1d_1_ecx = 8; }, "palette");
  expect_amx_withheld([](cpu::CpuidLeaves* l) { l->supported_state = 0; }, "permission");
  expect_amx_withheld([](cpu::CpuidLeaves* l) { l->supported_state = kAvx512State; }, "permission");
}

TEST(Detection, NothingIsWithheldWhereAmxIsNotAdvertised) {
  for (cpu::CpuidLeaves (*machine)() : {haswell, skylake_x, cascade_lake, alder_lake, zen4}) {
    EXPECT_TRUE(cpu::features_from_cpuid(machine()).withheld.empty());
  }
  cpu::CpuidLeaves tile_only = sapphire_rapids();
  tile_only.leaf7_edx = kAmxTile;  // and no INT8
  EXPECT_EQ(tier_of(tile_only), "cpu/avx512vnni");
  cpu::CpuidLeaves int8_only = sapphire_rapids();
  int8_only.leaf7_edx = kAmxInt8;
  EXPECT_EQ(tier_of(int8_only), "cpu/avx512vnni");
}

// Green tests must not mean that the fastest tier was never run.
TEST(Detection, EveryTierThatTheMachineGrantsIsUsable) {
  for (const KernelCase& kernel : cpu_tiers()) {
    const std::optional<bool> granted = machine_grants(kernel.name);
    if (!granted) continue;
    EXPECT_EQ(kernel.usable, *granted) << kernel.name << ": " << kernel.reason;
  }
}
#endif

TEST(Detection, CompilerFlagsBecomeNeeds) {
  EXPECT_EQ(
      core::features_from_flags("-mavx2 -mfma"),
      FeatureSet().with(Feature::avx2).with(Feature::fma).with(Feature::avx).with(Feature::sse2));
  EXPECT_TRUE(core::features_from_flags("").empty());
  EXPECT_TRUE(core::features_from_flags("-mavx512vnni").has(Feature::avx512f));
  EXPECT_ANY_THROW(core::features_from_flags("-mavx512fp16")) << "a flag that is not known";
}

}  // namespace
}  // namespace qattn::test
