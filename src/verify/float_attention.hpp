// Attention on float tensors in float64: the yardstick for what quantisation itself costs, and a
// second opinion on the float64 reference.
#pragma once

#include <optional>
#include <vector>

#include "verify/host_problem.hpp"

namespace qattn::verify {

/// An attention problem on float tensors, contiguous (batch, seq, heads, head_dim).
struct FloatProblem {
  Dimensions dimensions;
  Mask mask = Mask::causal();
  std::optional<float> softmax_scale;
  std::vector<float> q, k, v;
};

/// The tensors that a quantised problem stands for.
FloatProblem dequantise(const HostProblem& problem);

/// Attention in float64, rounded to float32 at the end; on all OpenMP threads. Throws
/// Error(unsupported) for masks other than causal and full.
Result float_attention(const FloatProblem& problem);

}  // namespace qattn::verify
