#include "errors.hpp"

#include <nanobind/nanobind.h>

#include <exception>

#include "qattn/error.hpp"

namespace nb = nanobind;

namespace qattn::python {
namespace {

const char* class_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "InvalidArgument";
    case ErrorCode::unsupported:
      return "Unsupported";
    case ErrorCode::unknown_kernel:
      return "UnknownKernel";
    case ErrorCode::kernel_unusable:
      return "KernelUnusable";
    case ErrorCode::device_unavailable:
      return "DeviceUnavailable";
    case ErrorCode::out_of_memory:
      return "OutOfMemory";
    case ErrorCode::cuda:
      return "CudaError";
  }
  return "Error";
}

void set_error(const char* name, const char* message) {
  PyErr_SetString(nb::module_::import_("qattn._errors").attr(name).ptr(), message);
}

void translate(const std::exception_ptr& pointer, void* /*payload*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    set_error(class_name(error.code()), error.what());
  } catch (const TypeMismatch& error) {
    set_error("ArgumentTypeError", error.what());
  }
}

}  // namespace

void refuse_value(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

void refuse_type(const std::string& message) { throw TypeMismatch(message); }

void register_errors() { nb::register_exception_translator(translate, nullptr); }

}  // namespace qattn::python
