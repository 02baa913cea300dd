#include "dispatch/config.hpp"

#include <cstdlib>
#include <cstring>

namespace qattn::dispatch {

const Config& config() {
  // Leaked on purpose: threads may still call the library while static objects are destroyed.
  static const Config* const instance = [] {
    auto* c = new Config;
    if (const char* kernel = std::getenv("QATTN_KERNEL")) c->kernel = kernel;
    if (const char* verbose = std::getenv("QATTN_VERBOSE")) {
      c->verbose = *verbose != '\0' && std::strcmp(verbose, "0") != 0;
    }
    return c;
  }();
  return *instance;
}

}  // namespace qattn::dispatch
