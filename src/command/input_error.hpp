// What the command reports in one line before it exits with code 2.
#pragma once

#include <stdexcept>

namespace qattn::command {

/// A file, or a combination of arguments, that the command cannot work with.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace qattn::command
