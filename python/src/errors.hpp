// Errors of the binding and how they reach Python.
#pragma once

#include <stdexcept>
#include <string>

namespace qattn::python {

/// An argument of the wrong kind or element type: qattn.ArgumentTypeError in Python.
class TypeMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws qattn::Error(invalid_argument): qattn.InvalidArgument, a ValueError, in Python.
[[noreturn]] void refuse_value(const std::string& message);
[[noreturn]] void refuse_type(const std::string& message);

/// The library's message in the words of Python: "options.kernel is ..." becomes "kernel is ...".
std::string in_arguments(std::string message);

/// Maps qattn::Error and TypeMismatch to the classes of qattn._errors, for the module that calls.
void register_errors();

}  // namespace qattn::python
