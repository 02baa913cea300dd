// QATTN_KERNEL and QATTN_VERBOSE. They are read once per process, hence the child processes.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "support/call.hpp"
#include "support/child.hpp"

namespace qattn::test {
namespace {

int run_with_environment() {
  Call call;
  try {
    const Explanation explanation =
        explain(call.device, call.q, call.k, call.v, call.out, call.options);
    std::printf("explained: %s\n", explanation.kernel.c_str());
    forward(call.device, call.q, call.k, call.v, call.out, call.options);
    forward(call.device, call.q, call.k, call.v, call.out, call.options);
    std::printf("ran\n");
  } catch (const Error& error) {
    std::printf("error %d: %s\n", static_cast<int>(error.code()), error.what());
  }
  return 0;
}
const ChildScenario scenario("run_with_environment", run_with_environment);

TEST(Environment, ForcesAKernelOfTheSameDevice) {
  const ChildResult child = run_child("run_with_environment", {{"QATTN_KERNEL", "cpu/scalar"}});
  EXPECT_EQ(child.output, "explained: cpu/scalar\nran\n");
}

TEST(Environment, LeavesOtherDevicesAlone) {
  const ChildResult child = run_child("run_with_environment", {{"QATTN_KERNEL", "cuda/sm80"}});
  EXPECT_NE(child.output.find("explained: cpu/"), std::string::npos) << child.output;
  EXPECT_NE(child.output.find("ran\n"), std::string::npos) << child.output;
}

TEST(Environment, UnknownNameIsAnErrorThatListsTheNames) {
  const ChildResult child = run_child("run_with_environment", {{"QATTN_KERNEL", "cpu/avx3"}});
  const std::string code = std::to_string(static_cast<int>(ErrorCode::unknown_kernel));
  EXPECT_NE(child.output.find("error " + code), std::string::npos) << child.output;
  EXPECT_NE(child.output.find("cpu/scalar"), std::string::npos) << child.output;
  EXPECT_NE(child.output.find("QATTN_KERNEL"), std::string::npos)
      << "the message must name the variable, not an option nobody set: " << child.output;
}

TEST(Environment, VerbosePrintsADecisionOnce) {
  const ChildResult child =
      run_child("run_with_environment", {{"QATTN_VERBOSE", "1"}, {"QATTN_KERNEL", "cpu/scalar"}});
  const std::size_t first = child.output.find("cpu/scalar: chosen");
  EXPECT_NE(first, std::string::npos) << child.output;
  EXPECT_EQ(child.output.find("cpu/scalar: chosen", first + 1), std::string::npos) << child.output;
}

}  // namespace
}  // namespace qattn::test
