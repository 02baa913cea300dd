// From exceptions to status codes: nothing is thrown past a function of the C API.
#pragma once

#include <string>

#include "qattn/qattn.h"

namespace qattn::capi {

/// Throws Error(invalid_argument).
[[noreturn]] void refuse(const std::string& message);

/// Keeps the message of the exception that is being handled for the calling thread and returns its
/// status. Allocates nothing.
qattn_status keep_current_exception() noexcept;

/// Runs body(), the whole of a function of the C API.
template <typename Body>
qattn_status guarded(Body&& body) noexcept {
  try {
    body();
    return QATTN_OK;
  } catch (...) {
    return keep_current_exception();
  }
}

}  // namespace qattn::capi
