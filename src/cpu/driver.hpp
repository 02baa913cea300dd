// Runs a CPU kernel over a problem: cuts it into tasks and spreads them over threads.
#pragma once

#include "core/kernel.hpp"
#include "cpu/work.hpp"

namespace qattn::cpu {

/// Runs all tasks of `problem` with `run`, on OpenMP threads or on the caller's executor. The
/// floating-point environment of every thread is set to the default and restored.
void drive(const core::Problem& problem, const core::RunContext& context, RunWork run);

}  // namespace qattn::cpu
