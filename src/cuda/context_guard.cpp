#include "cuda/context_guard.hpp"

#include "cuda/driver_api.hpp"
#include "qattn/error.hpp"

namespace qattn::cuda {

void* current_context() noexcept {
  CUcontext context = nullptr;
  static_cast<void>(driver_if_loaded()->ctx_get_current(&context));
  return context;
}

ContextGuard::ContextGuard(void* context) {
  if (driver_if_loaded()->ctx_push_current(static_cast<CUcontext>(context)) != CUDA_SUCCESS) {
    throw Error(ErrorCode::cuda, "making the CUDA context current in a thread failed");
  }
}

ContextGuard::~ContextGuard() {
  CUcontext popped = nullptr;
  static_cast<void>(driver_if_loaded()->ctx_pop_current(&popped));
}

}  // namespace qattn::cuda
