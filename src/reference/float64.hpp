// The reference: attention in float64, as the formula reads. Slow and simple on purpose.
#pragma once

#include "core/kernel.hpp"

namespace qattn::reference {

/// Computes `problem` in float64 (one thread) and rounds once: out to its type, lse to float32.
void run_float64(const core::Problem& problem, const core::RunContext& context);

}  // namespace qattn::reference
