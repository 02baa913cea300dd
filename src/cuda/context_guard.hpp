// The current CUDA context, for threads of the library's own to share.
#pragma once

namespace qattn::cuda {

/// The calling thread's current context. A DeviceGuard has made one current.
void* current_context() noexcept;

/// Makes a context of current_context() the calling thread's for a scope. Throws Error(cuda).
class ContextGuard {
 public:
  explicit ContextGuard(void* context);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
};

}  // namespace qattn::cuda
