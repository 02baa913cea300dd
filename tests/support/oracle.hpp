// Attention as two plain loops in double, written without a look at the library's own reference:
// the suite judges that reference too.
#pragma once

#include <vector>

#include "verify/host_problem.hpp"

namespace qattn::test {

/// The result of `problem`, for causal and full masks. O(seq_q * seq_k * head_dim) scalar work: for
/// small problems.
verify::Result oracle(const verify::HostProblem& problem);

/// What the proven error bounds of a row are relative to, over its visible keys.
struct ValueSpread {
  double spread = 0;   ///< largest ||v_scale * v_j - out||
  double largest = 0;  ///< largest ||v_scale * v_j||
};
/// Of every row, (batch, seq_q, heads_q).
std::vector<ValueSpread> value_spreads(const verify::HostProblem& problem);

}  // namespace qattn::test
