// QATTN_VERBOSE: says on stderr which kernel runs, once per distinct problem.
#pragma once

#include "dispatch/select.hpp"

namespace qattn::dispatch {

void print_decision_once(const Device& device, const Selection& selection);

}  // namespace qattn::dispatch
