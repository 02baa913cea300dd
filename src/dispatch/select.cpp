#include "dispatch/select.hpp"

#include "qattn/error.hpp"

namespace qattn::dispatch {
namespace {

using core::Kernel;

bool usable(const Kernel& kernel, const Selection& s) noexcept {
  return kernel.run != nullptr && kernel.device == s.device && s.have.contains(kernel.needs) &&
         (s.problem == nullptr || core::supports(kernel.limits, *s.problem) == core::Support::yes);
}

// A kernel whose blocks the problem would leave mostly idle.
bool too_large_for(const Kernel& kernel, const Selection& s) noexcept {
  return s.problem != nullptr && s.problem->rows() < kernel.preferred_rows;
}

const char* kind_name(Device::Kind kind) { return kind == Device::Kind::cpu ? "CPU" : "CUDA"; }

const Kernel* find(std::span<const Kernel> table, std::string_view name) noexcept {
  for (const Kernel& kernel : table) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

std::string names(const Selection& s, bool usable_only) {
  std::string list;
  for (const Kernel& kernel : s.table) {
    if (usable_only && !usable(kernel, s)) continue;
    if (!list.empty()) list += ", ";
    list += kernel.name;
  }
  return list.empty() ? "none" : list;
}

// What there is to say when no kernel of the device can run: one reason if all of them share it.
std::string common_reason(const Selection& s) {
  std::string common;
  std::string all;
  bool same = true;
  for (const Kernel& kernel : s.table) {
    if (kernel.device != s.device || !kernel.automatic) continue;
    const std::string reason = refusal(kernel, s);
    if (common.empty()) common = reason;
    same = same && reason == common;
    all += "\n  " + std::string(kernel.name) + ": " + reason;
  }
  if (common.empty()) return "the table has no kernel for this device";
  return same ? common : "no kernel can run this problem:" + all;
}

// `name` as it can stand in a message, which ends at a NUL and should be one line.
std::string printable(std::string_view name) {
  std::string text;
  for (const char c : name) text += static_cast<unsigned char>(c) < ' ' || c == 0x7F ? '?' : c;
  return text;
}

std::string forced_error(const Selection& s) {
  const std::string name = printable(s.forced);
  const Kernel* kernel = find(s.table, s.forced);
  if (kernel == nullptr) {
    return std::string(s.forced_by) + " is \"" + name + "\" (allowed: " + names(s, false) + ")";
  }
  return std::string(s.forced_by) + " is \"" + name +
         "\", which cannot run: " + refusal(*kernel, s) +
         " (allowed for this call: " + names(s, true) + ")";
}

}  // namespace

const Kernel* select(const Selection& s) noexcept {
  if (!s.forced.empty()) {
    const Kernel* kernel = find(s.table, s.forced);
    return kernel != nullptr && usable(*kernel, s) ? kernel : nullptr;
  }
  const Kernel* fallback = nullptr;
  for (const Kernel& kernel : s.table) {
    if (!kernel.automatic || !usable(kernel, s)) continue;
    if (!too_large_for(kernel, s)) return &kernel;
    if (fallback == nullptr) fallback = &kernel;
  }
  return fallback;
}

std::string refusal(const Kernel& kernel, const Selection& s) {
  if (kernel.device != s.device) {
    return std::string("is a kernel for ") + kind_name(kernel.device) + " devices";
  }
  if (kernel.run == nullptr) return std::string(kernel.absent_reason);
  if (!s.have.contains(kernel.needs)) {
    const core::FeatureSet missing = kernel.needs.missing_from(s.have);
    const core::FeatureSet lacking = missing.missing_from(s.withheld);
    return lacking.empty() ? std::string(s.withheld_reason)
                           : "this device lacks " + lacking.to_string();
  }
  return s.problem == nullptr ? std::string() : core::describe_refusal(kernel.limits, *s.problem);
}

Explanation explain(const Selection& s) {
  Explanation explanation;
  const Kernel* chosen = select(s);
  if (chosen != nullptr) explanation.kernel = chosen->name;
  for (const Kernel& kernel : s.table) {
    if (&kernel == chosen) break;
    KernelStatus status{std::string(kernel.name), false, refusal(kernel, s)};
    if (status.reason.empty()) {
      status.usable = true;
      status.reason = !s.forced.empty()  ? "\"" + std::string(s.forced) + "\" is forced"
                      : kernel.automatic ? "faster from " + std::to_string(kernel.preferred_rows) +
                                               " rows on (queries times heads of a group)"
                                         : "runs only when forced";
    }
    explanation.passed_over.push_back(std::move(status));
  }
  if (chosen == nullptr) {
    explanation.error = s.forced.empty() ? common_reason(s) : forced_error(s);
  }
  return explanation;
}

void throw_no_kernel(const Selection& s) {
  if (s.forced.empty()) throw Error(ErrorCode::unsupported, common_reason(s));
  const bool known = find(s.table, s.forced) != nullptr;
  throw Error(known ? ErrorCode::kernel_unusable : ErrorCode::unknown_kernel, forced_error(s));
}

}  // namespace qattn::dispatch
