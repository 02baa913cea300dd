// Settings from the environment, read once.
#pragma once

#include <string>

namespace qattn::dispatch {

/// QATTN_KERNEL and QATTN_VERBOSE as they were at the first use of the library.
struct Config {
  std::string kernel;    ///< forced kernel for its own device; empty: none
  bool verbose = false;  ///< print each decision once per distinct problem
};
const Config& config();

}  // namespace qattn::dispatch
