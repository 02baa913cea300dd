// The one exception type of the library.
#pragma once

#include <stdexcept>
#include <string>

#include "qattn/export.hpp"

namespace qattn {

/// What kind of thing went wrong; Error::code() returns it.
enum class ErrorCode {
  invalid_argument,    ///< an argument is outside its documented domain; nothing was written
  unsupported,         ///< a valid request that no kernel of this device implements (yet)
  unknown_kernel,      ///< a forced kernel name that is not in the table
  kernel_unusable,     ///< a forced kernel that this machine or this problem rules out
  device_unavailable,  ///< the CUDA device asked for cannot be used; the message says why
  out_of_memory,       ///< host or device memory ran out; the library stays usable
  cuda,                ///< the CUDA runtime or driver reported an error
};

/// Thrown by every function of the C++ API that can fail. The message names the argument, what was
/// given and what is allowed. Only what a caller's own Executor::run throws comes out as it is.
class QATTN_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);
  Error(const Error&) noexcept;
  Error& operator=(const Error&) noexcept;
  ~Error() override;  // out of line: the key function that gives the type one home for its typeinfo

  /// The kind of error.
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace qattn
