// The two masks that HostProblem's yardsticks know, worked out apart from the kernels' own code.
#pragma once

#include <algorithm>

#include "verify/host_problem.hpp"

namespace qattn::verify {

/// Query i sees keys [0, visible_keys(i)). Throws Error(unsupported) for other masks.
inline std::int64_t visible_keys(const Dimensions& dimensions, const Mask& mask, std::int64_t i) {
  if (mask.kind == Mask::Kind::full) return dimensions.seq_k;
  if (mask.kind != Mask::Kind::causal) {
    throw Error(ErrorCode::unsupported, "mask: only causal and full problems can be checked");
  }
  const std::int64_t position = i + (dimensions.seq_k - dimensions.seq_q);
  return std::clamp<std::int64_t>(position + 1, 0, dimensions.seq_k);
}

}  // namespace qattn::verify
