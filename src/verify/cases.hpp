// The built-in cases of `qattn verify`: the accuracy rows and small shapes of every kind.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verify/host_problem.hpp"

namespace qattn::verify {

/// A named problem, built when it is needed.
struct Case {
  std::string name;
  std::function<HostProblem()> make;
};

/// All cases, or those that are done in seconds.
std::vector<Case> built_in_cases(bool quick);

}  // namespace qattn::verify
