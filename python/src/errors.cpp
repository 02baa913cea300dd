#include "errors.hpp"

#include <nanobind/nanobind.h>

#include <exception>
#include <string_view>

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
    set_error(class_name(error.code()), in_arguments(error.what()).c_str());
  } catch (const TypeMismatch& error) {
    set_error("ArgumentTypeError", error.what());
  }
}

}  // namespace

std::string in_arguments(std::string message) {
  struct Words {
    std::string_view ours, theirs;
  };
  // At the beginning alone: what follows may be text of the caller.
  constexpr Words kStarts[] = {{"options.", ""}, {"input holds ", "x holds "}, {"input.", "x."}};
  for (const Words& words : kStarts) {
    if (message.compare(0, words.ours.size(), words.ours) == 0) {
      message.replace(0, words.ours.size(), words.theirs);
      break;
    }
  }
  // Why a kernel does not serve, once for each kernel.
  constexpr Words kWindow = {"options.mask with a window (allowed: causal, full)",
                             "window (allowed: None)"};
  for (std::size_t at = 0; (at = message.find(kWindow.ours, at)) != std::string::npos;) {
    message.replace(at, kWindow.ours.size(), kWindow.theirs);
  }
  return message;
}

void refuse_value(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

void refuse_type(const std::string& message) { throw TypeMismatch(message); }

void register_errors() { nb::register_exception_translator(translate, nullptr); }

}  // namespace qattn::python
