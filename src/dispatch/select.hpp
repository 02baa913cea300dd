// Selection: a pure function of the table, the machine's features, the problem and a forced name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/kernel.hpp"
#include "qattn/introspect.hpp"

namespace qattn::dispatch {

/// What a selection looks at. Nothing else influences it.
struct Selection {
  std::span<const core::Kernel> table;
  Device::Kind device = Device::Kind::cpu;
  core::FeatureSet have;                          // of the device
  const core::Problem* problem = nullptr;         // null: any problem
  std::string_view forced;                        // empty: automatic
  std::string_view forced_by = "options.kernel";  // who forces it, for messages
  core::FeatureSet withheld = {};                 // of the hardware, but not usable
  std::string_view withheld_reason = {};          // why
};

/// The kernel to run, or null if there is none (explain() says why). Allocates nothing.
const core::Kernel* select(const Selection& selection) noexcept;

/// Why `kernel` cannot run with these features and this problem; empty if it can.
std::string refusal(const core::Kernel& kernel, const Selection& selection);

/// The same decision as select(), with a reason for every kernel passed over and the error if
/// nothing is left.
Explanation explain(const Selection& selection);

/// The error that forward() throws when select() found nothing.
[[noreturn]] void throw_no_kernel(const Selection& selection);

}  // namespace qattn::dispatch
