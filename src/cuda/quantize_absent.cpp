// The functions of cuda/quantize.hpp in a build without CUDA: no device is ever found for them.
#include "cuda/device.hpp"
#include "cuda/quantize.hpp"
#include "qattn/error.hpp"

namespace qattn::cuda {
namespace {

[[noreturn]] void refuse(const Device& device) {
  throw Error(ErrorCode::device_unavailable,
              "device " + device.name() + " cannot be used: " + unusable_reason(device.ordinal()));
}

}  // namespace

void quantize(const Device& device, const core::QuantizeProblem&) { refuse(device); }
void wait_for_stream(const Device& device) { refuse(device); }

}  // namespace qattn::cuda
