// Host memory that runs out, as the public functions report it.
#pragma once

#include <new>
#include <string>

#include "qattn/error.hpp"

namespace qattn::core {

/// Returns function(); throws Error(out_of_memory) where it throws std::bad_alloc. `what` is what
/// ran, "quantize".
template <typename Function>
auto reporting_exhaustion(const char* what, Function function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, std::string("out of host memory while ") + what + " ran");
  }
}

}  // namespace qattn::core
