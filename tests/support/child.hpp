// Scenarios that need a process of their own: first calls, environments, limits, forks. The test
// program runs itself again with the scenario's name.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace qattn::test {

/// A named function that runs in a fresh process; its value is the exit code. Defined at namespace
/// scope: `const ChildScenario first_call("first_call", [] { ...; return 0; });`
struct ChildScenario {
  ChildScenario(const char* name, int (*run)());
  const char* name;
  int (*run)();
  const ChildScenario* next;
};

/// How a child ended.
struct ChildResult {
  int exit_code = -1;  // 128 + signal if a signal ended it
  bool timed_out = false;
  std::string output;  // stdout and stderr
};

/// Runs a scenario with environment variables set ("OMP_NUM_THREADS", "2"), for `seconds` at most.
ChildResult run_child(const std::string& scenario,
                      const std::vector<std::pair<std::string, std::string>>& environment = {},
                      int seconds = 60);

/// The scenario that this process was started for; null in the test program itself.
const char* requested_child();
/// Runs it; an exception ends it with code 99 and its message on stderr.
int run_scenario(const char* scenario);

}  // namespace qattn::test
