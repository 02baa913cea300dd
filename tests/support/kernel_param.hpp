// The kernels of the table as the parameter of the suite: every case runs once per kernel.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "qattn/qattn.hpp"

namespace qattn::test {

/// A row of the kernel table.
struct KernelCase {
  std::string name;
  Device device = Device::cpu();
  bool usable = false;
  std::string reason;  // why it is not usable

  bool on_cpu() const { return device.kind() == Device::Kind::cpu; }
  bool is_reference() const { return name.rfind("reference/", 0) == 0; }
  /// A CPU tier: bound by the bit-for-bit specification of docs/numerics.md.
  bool is_cpu_tier() const { return name.rfind("cpu/", 0) == 0; }
};
void PrintTo(const KernelCase& kernel, std::ostream* stream);

/// Every kernel of the table, CUDA first; those that this machine lacks are marked.
const std::vector<KernelCase>& all_kernels();
/// The CUDA kernels of the table.
std::vector<KernelCase> cuda_kernels();
/// The usable CPU tiers, among them cpu/scalar.
std::vector<KernelCase> usable_cpu_tiers();
/// The kernel of that name; a name that is not in the table ends the test program.
const KernelCase& kernel_named(const std::string& name);

/// Why this run leaves `kernel` out: the machine lacks it, or QATTN_TEST_KERNEL names another one.
/// Empty if it runs.
std::string skip_reason(const KernelCase& kernel);

/// "cpu_avx2": the kernel's name as GoogleTest allows it.
std::string test_name(const testing::TestParamInfo<KernelCase>& info);

/// Base of the suites whose cases run once per kernel. Skips kernels that do not run here.
class KernelTest : public testing::TestWithParam<KernelCase> {
 protected:
  void SetUp() override;
  const KernelCase& kernel() const { return GetParam(); }
};

/// A KernelTest for what binds the CPU tiers alone.
class CpuTierTest : public KernelTest {};
/// The CPU tiers of the table.
std::vector<KernelCase> cpu_tiers();

/// Seed of this program run: QATTN_TEST_SEED, else 1.
std::uint64_t base_seed();
/// Seed of one problem of the current test: differs between problems, fixed by base_seed().
std::uint64_t case_seed(std::uint64_t index);
/// The command that repeats the current test with the current seed.
std::string reproduce();

/// Checks QATTN_TEST_KERNEL and prints, after the run, how many cases every kernel ran, or why
/// none.
void register_kernel_summary();

}  // namespace qattn::test
