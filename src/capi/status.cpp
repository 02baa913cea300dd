#include "capi/status.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

#include "qattn/error.hpp"
#include "qattn/version.hpp"

namespace qattn::capi {
namespace {

// Plain memory: keeping a message can neither fail nor leave a destructor to the end of a thread.
constexpr std::size_t kMessageBytes = 2048;
thread_local char last_message[kMessageBytes] = "";

void keep(std::string_view message) noexcept {
  constexpr std::string_view kCut = "...";
  const bool fits = message.size() < kMessageBytes;
  const std::size_t size = fits ? message.size() : kMessageBytes - 1 - kCut.size();
  std::memmove(last_message, message.data(), size);
  char* end = last_message + size;
  if (!fits) end = std::copy(kCut.begin(), kCut.end(), end);
  *end = '\0';
}

qattn_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return QATTN_INVALID_ARGUMENT;
    case ErrorCode::unsupported:
      return QATTN_UNSUPPORTED;
    case ErrorCode::unknown_kernel:
      return QATTN_UNKNOWN_KERNEL;
    case ErrorCode::kernel_unusable:
      return QATTN_KERNEL_UNUSABLE;
    case ErrorCode::device_unavailable:
      return QATTN_DEVICE_UNAVAILABLE;
    case ErrorCode::out_of_memory:
      return QATTN_OUT_OF_MEMORY;
    case ErrorCode::cuda:
      return QATTN_CUDA_ERROR;
  }
  return QATTN_INTERNAL_ERROR;
}

}  // namespace

void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

qattn_status keep_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    keep(error.what());
    return status_of(error.code());
  } catch (const std::bad_alloc&) {
    keep("out of host memory");
    return QATTN_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    keep(error.what());
  } catch (...) {
    keep("an exception that is not derived from std::exception");
  }
  return QATTN_INTERNAL_ERROR;
}

}  // namespace qattn::capi

extern "C" {

const char* qattn_last_error_message(void) { return qattn::capi::last_message; }

const char* qattn_status_name(qattn_status status) {
  switch (status) {
    case QATTN_OK:
      return "ok";
    case QATTN_INVALID_ARGUMENT:
      return "invalid_argument";
    case QATTN_UNSUPPORTED:
      return "unsupported";
    case QATTN_UNKNOWN_KERNEL:
      return "unknown_kernel";
    case QATTN_KERNEL_UNUSABLE:
      return "kernel_unusable";
    case QATTN_DEVICE_UNAVAILABLE:
      return "device_unavailable";
    case QATTN_OUT_OF_MEMORY:
      return "out_of_memory";
    case QATTN_CUDA_ERROR:
      return "cuda_error";
    case QATTN_INTERNAL_ERROR:
      return "internal_error";
    default:
      return "unknown";
  }
}

const char* qattn_version(void) { return qattn::version(); }

}  // extern "C"
