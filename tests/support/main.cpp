// Entry point of the suite: GoogleTest, or one child scenario (support/child.hpp).
#include <gtest/gtest.h>

#include "support/child.hpp"
#include "support/kernel_param.hpp"

int main(int argc, char** argv) {
  // Before GoogleTest: making its parameters looks at the machine, which a child must not do.
  if (const char* scenario = qattn::test::requested_child()) {
    return qattn::test::run_scenario(scenario);
  }
  testing::InitGoogleTest(&argc, argv);
  qattn::test::register_kernel_summary();
  return RUN_ALL_TESTS();
}
