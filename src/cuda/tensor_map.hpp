// Tensor maps: what the tensor copy engine of capability 9.0 needs to know of K and V.
#pragma once

#include "core/problem.hpp"
#include "cuda/attention.hpp"

namespace qattn::cuda {

/// Fills params.k_map and v_map and sets params.bulk where the engine can read K and V in boxes of
/// `kernel`: 16-byte aligned base and strides. Elsewhere, and for kernels without boxes, leaves it
/// unset. Takes 0.1 us a map; nothing is kept on the device.
void describe_tensors(AttentionParams& params, const core::Problem& problem,
                      const AttentionKernel& kernel);

}  // namespace qattn::cuda
