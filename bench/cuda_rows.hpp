// The rows that need the CUDA runtime. Defined in every build: without CUDA (cuda_absent.cpp) there
// are none of them.
#pragma once

#include <functional>

#include "rows.hpp"

namespace qattn::bench {

/// Times `launch`, which puts work on the device's legacy default stream, between CUDA events, many
/// launches at a time where one is short. For rows with UseManualTime().
void time_on_cuda(benchmark::State& state, const std::function<void()>& launch);

void register_cuda_ceiling_rows();
/// graph/... and host/...: the tiny problem in a graph, and what a call costs on the host.
void register_launch_rows(TensorCache& cache);
/// The simplest kernel there is, one thread for each query, for one problem.
void register_one_thread_per_query_rows(TensorCache& cache, const Extents& extents,
                                        const Mask& mask);

}  // namespace qattn::bench
