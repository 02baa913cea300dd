// How long a call of forward() takes.
#pragma once

#include <string>

#include "qattn/qattn.hpp"
#include "verify/host_problem.hpp"

namespace qattn::command {

/// Median seconds per call over `repeats` measurements, after a warm-up. A measurement is as many
/// calls as take some milliseconds, and one wait for their end.
double median_seconds(verify::PlacedProblem& problem, Precision precision,
                      const std::string& kernel, int threads, int repeats);

/// "12.3 us".
std::string time_text(double seconds);

}  // namespace qattn::command
