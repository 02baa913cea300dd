// Error measures of the accuracy contract (docs/numerics.md).
#pragma once

#include <string>
#include <vector>

#include "verify/host_problem.hpp"

namespace qattn::verify {

/// The worst error of a result against the reference.
struct Measure {
  /// Largest relative Frobenius error ||out - ref|| / ||ref|| over the (batch, head) pairs.
  double relative = 0;
  /// Largest ratio, over all rows, of ||out - ref|| to 4 * rms_j ||v_scale * v_j||, the mean taken
  /// over the row's visible keys.
  double row = 0;
  /// Largest |lse - ref| over max(1, |ref|).
  double lse = 0;
  /// First entry that is not finite where the reference is, not 0 in a row without visible keys, or
  /// whose lse is -infinity where the reference's is not, or the reverse; empty if there is none.
  /// Entries whose reference is not finite count nowhere else.
  std::string fault;
};

/// Measure::relative alone, of outputs (batch, seq_q, heads_q, head_dim).
double relative_error(const Dimensions& dimensions, const std::vector<float>& out,
                      const std::vector<float>& reference);

/// All measures of `result`, the outcome of `problem`, against `reference`. Throws
/// Error(unsupported) for masks other than causal and full.
Measure measure(const HostProblem& problem, const Result& result, const Result& reference);

/// First entry, of the result or of its reference, that is not finite, or an lse of -infinity where
/// there are visible keys: what Measure::fault lets pass where both agree on it. Empty if there is
/// none.
std::string first_not_finite(const HostProblem& problem, const Result& result,
                             const Result& reference);

/// Bound on Measure::relative and Measure::row for a precision: 5e-4 (high), 1.5e-2 (fast).
double error_bound(Precision precision);
/// Bound on Measure::lse for a precision: the error of the denominator, which the same
/// probabilities make.
double lse_bound(Precision precision);
/// Whether a measure has no fault and keeps within the bounds.
bool passes(const Measure& measure, Precision precision);

}  // namespace qattn::verify
