#include "core/kernel.hpp"

#include <array>

namespace qattn::core {
namespace {

// In the order of Extra. Each reads after "not implemented by this kernel: ".
constexpr std::array<std::string_view, kExtraCount> kExtraText = {
    "options.mask with a window (allowed: causal, full)",
    "options.mask with boolean entries (allowed: causal, full)",
    "options.mask with additive entries (allowed: causal, full)",
    "a packed layout of q, k or v (allowed: dense)",
    "a paged layout of k or v (allowed: dense)",
    "a scale per tensor (allowed: per_head)",
    "a scale per batch entry and head (allowed: per_head)",
    "a scale per token (allowed: per_head)",
    "a scale per block of tokens (allowed: per_head)",
    "a scale per channel (allowed: per_head)",
    "dtype uint8 of q, k or v (allowed: int8)",
    "options.soft_cap (allowed: 0)",
    "options.alibi_slopes (allowed: null)",
    "options.sinks (allowed: null)",
    "a head_dim of v that differs from that of q and k (allowed: the same)",
    "dtype float16 of out (allowed: float32)",
    "dtype bfloat16 of out (allowed: float32)",
    "dtype int8 of out (allowed: float32)",
};

}  // namespace

Support supports(const Limits& limits, const Problem& problem) noexcept {
  if (problem.head_dim > limits.head_dim_max) return Support::head_dim_too_large;
  if (!problem.extras.missing_from(limits.extras).empty()) return Support::extra_missing;
  return Support::yes;
}

std::string describe_refusal(const Limits& limits, const Problem& problem) {
  switch (supports(limits, problem)) {
    case Support::yes:
      return {};
    case Support::head_dim_too_large:
      return "head_dim is " + std::to_string(problem.head_dim) + " (allowed: 1 to " +
             std::to_string(limits.head_dim_max) + ")";
    case Support::extra_missing:
      break;
  }
  const ExtraSet missing = problem.extras.missing_from(limits.extras);
  std::string text = "not implemented yet: ";
  bool first = true;
  for (int i = 0; i < kExtraCount; ++i) {
    if (!missing.has(static_cast<Extra>(i))) continue;
    if (!first) text += ", ";
    text += kExtraText[i];
    first = false;
  }
  return text;
}

}  // namespace qattn::core
