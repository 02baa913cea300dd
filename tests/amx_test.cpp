// cpu/amx_int8 and the world around it: the OS's permission to use tile registers, and other users
// of them. What it computes is the kernel suite's affair.
#include "support/amx.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/child.hpp"
#include "support/cpuid.hpp"
#include "support/kernel_param.hpp"

namespace qattn::test {
namespace {

// Judged by the suite's own look at the machine, not by the library's.
class Amx : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__x86_64__)
    if (!machine_grants("cpu/amx_int8").value_or(false)) {
      GTEST_SKIP() << "cpu/amx_int8: " << kernel_named("cpu/amx_int8").reason;
    }
#else
    GTEST_SKIP() << "cpu/amx_int8: this build is for another processor";
#endif
  }

  // The scenario's output. Skips or fails the test as the scenario ended.
  static std::string run(const std::string& scenario,
                         const std::vector<std::pair<std::string, std::string>>& environment = {
                             {"OMP_NUM_THREADS", "3"}}) {
    const ChildResult child = run_child(scenario, environment);
    if (child.exit_code == kSkip) {
      skip(child.output);
    } else {
      EXPECT_EQ(child.exit_code, 0) << scenario << "\n" << child.output;
    }
    return child.output;
  }

 private:
  static void skip(const std::string& why) { GTEST_SKIP() << why; }
};

TEST_F(Amx, AsksForThePermissionWhenTheKernelRunsAndNotBefore) { run("amx_asks_when_it_runs"); }

TEST_F(Amx, ThePermissionCoversThreadsAndChildren) { run("amx_covers_threads_and_children"); }

TEST_F(Amx, ASmallSignalStackLeavesTheNextKernel) { run("amx_small_signal_stack"); }

TEST_F(Amx, VerboseTellsOfTheRefusal) {
  const std::string output = run("amx_small_signal_stack", {{"QATTN_VERBOSE", "1"}});
  if (IsSkipped()) return;
  EXPECT_NE(output.find("qattn: cpu B1"), std::string::npos) << output;
  EXPECT_NE(output.find("cpu/amx_int8: passed over, the operating system refused"),
            std::string::npos)
      << output;
  EXPECT_NE(output.find("cpu/avx512vnni: chosen"), std::string::npos) << output;
  EXPECT_EQ(output.find("cpu/amx_int8: chosen"), std::string::npos) << output;
}

TEST_F(Amx, ForcedAndRefusedIsAnErrorThatSaysSo) {
  const std::string reason =
      "the operating system refused the permission to use AMX tile registers";
  const std::string option = run("amx_small_signal_stack_and_forced");
  if (IsSkipped()) return;
  EXPECT_NE(option.find("options.kernel is \"cpu/amx_int8\", which cannot run: " + reason),
            std::string::npos)
      << option;
}

TEST_F(Amx, ASandboxThatForbidsTheRequestLeavesTheNextKernel) {
  run("amx_request_forbidden");
  if (!IsSkipped()) run("amx_arch_prctl_forbidden");
}

TEST_F(Amx, APermissionThatOthersAskedForCounts) { run("amx_permission_of_others_counts"); }

TEST_F(Amx, OtherUsersOfTheTilesDoNotMatter) { run("amx_others_use_tiles"); }

TEST_F(Amx, TilesAreReleased) { run("amx_tiles_are_released"); }

}  // namespace
}  // namespace qattn::test
