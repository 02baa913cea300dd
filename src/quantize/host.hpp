// Quantisation of host memory.
#pragma once

#include "core/quantize_problem.hpp"
#include "qattn/quantize.hpp"

namespace qattn::quantization {

/// Quantises on the CPU and returns when the result is there. Throws Error(invalid_argument) for a
/// head with NaN or infinity, before anything is written, or Error(out_of_memory).
void quantize_host(const core::QuantizeProblem& problem, const QuantizeOptions& options);

}  // namespace qattn::quantization
