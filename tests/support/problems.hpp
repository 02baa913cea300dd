// Hand-made problems: zero tensors with unit scales and access to their rows.
#pragma once

#include <cstdint>
#include <string>

#include "verify/host_problem.hpp"

namespace qattn::test {

/// Problem whose tensors are all zero and whose scales, softmax_scale included, are all 1.
verify::HostProblem blank_problem(const verify::Dimensions& dimensions, Mask mask);

/// Rows of head_dim elements.
std::int8_t* q_row(verify::HostProblem* problem, std::int64_t batch, std::int64_t token,
                   std::int64_t head);
std::int8_t* k_row(verify::HostProblem* problem, std::int64_t batch, std::int64_t token,
                   std::int64_t head);
std::int8_t* v_row(verify::HostProblem* problem, std::int64_t batch, std::int64_t token,
                   std::int64_t head);
/// Row of head_dim outputs, and the lse entry of a row.
const float* out_row(const verify::HostProblem& problem, const verify::Result& result,
                     std::int64_t batch, std::int64_t token, std::int64_t head);
float lse_at(const verify::HostProblem& problem, const verify::Result& result, std::int64_t batch,
             std::int64_t head, std::int64_t token);

/// Fills with the same value.
void fill(std::int8_t* row, std::int64_t count, int value);

/// The part of a problem that one batch entry is, and the part that one query token is (with all of
/// its keys visible under the causal mask cut off at the token).
verify::HostProblem batch_entry(const verify::HostProblem& problem, std::int64_t batch);
/// Token `token` of every batch entry as a decode step: the keys that it may not see are cut off.
verify::HostProblem decode_step(const verify::HostProblem& problem, std::int64_t token);

/// "B2xSq3... causal high": the problem in a failure message.
std::string describe(const verify::HostProblem& problem, Precision precision);

}  // namespace qattn::test
