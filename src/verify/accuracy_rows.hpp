// The rows of the accuracy suite: distributions that are known to break quantised attention.
#pragma once

#include <string>
#include <vector>

#include "verify/host_problem.hpp"

namespace qattn::verify {

/// One row. `make` builds its problem.
struct AccuracyRow {
  std::string name;  // "normal_sd3_1024"
  bool quick;        // small enough for `qattn verify --quick`
  HostProblem (*make)(const AccuracyRow& row);
  std::int64_t keys;
  double parameter;  // standard deviation or height of the sink in nats
};

/// All rows, in the order of the table in docs/numerics.md.
const std::vector<AccuracyRow>& accuracy_rows();

}  // namespace qattn::verify
