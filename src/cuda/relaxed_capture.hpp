// Calls that stream capture forbids by default, made safely.
#pragma once

#include <cuda_runtime_api.h>

namespace qattn::cuda {

/// Lets the calling thread load kernels, make pools and wait for its own streams while some stream
/// is being captured: none of that touches the captured work, and without this it would be refused
/// and would spoil the capture. Restores the thread's mode.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept {
    active_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
  }
  ~RelaxedCapture() {
    if (active_) static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool active_ = false;
};

}  // namespace qattn::cuda
