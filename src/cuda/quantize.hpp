// Quantisation of device memory. Compiled in every build (quantize_absent.cpp without CUDA).
#pragma once

#include "core/quantize_problem.hpp"
#include "qattn/device.hpp"

namespace qattn::cuda {

/// Quantises device memory in place on the device's stream: asynchronous, without further memory,
/// fit for capture. Throws Error(device_unavailable | cuda).
void quantize(const Device& device, const core::QuantizeProblem& problem);

/// Returns when all work on the device's stream is done. Throws Error(unsupported) while the
/// stream is being captured, which it leaves intact, and Error(device_unavailable | cuda).
void wait_for_stream(const Device& device);

}  // namespace qattn::cuda
