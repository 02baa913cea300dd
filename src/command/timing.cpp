#include "command/timing.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace qattn::command {

double median_seconds(verify::PlacedProblem& problem, Precision precision,
                      const std::string& kernel, int threads, int repeats) {
  const auto seconds_per_call = [&](int calls) {
    using Clock = std::chrono::steady_clock;
    problem.wait();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < calls; ++i) problem.forward(precision, kernel, threads);
    problem.wait();
    return std::chrono::duration<double>(Clock::now() - start).count() / calls;
  };
  // The wait for a GPU and the clock cost something too: spread it over some milliseconds of work.
  constexpr double kMeasurementSeconds = 5e-3;
  constexpr double kMostCalls = 1000;
  double once = seconds_per_call(1);
  if (once < kMeasurementSeconds) once = seconds_per_call(1);  // the first one also warms up
  const double wanted = kMeasurementSeconds / std::max(once, kMeasurementSeconds / kMostCalls);
  const int calls = static_cast<int>(std::max(wanted, 1.0));
  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(repeats));
  for (int i = 0; i < repeats; ++i) seconds.push_back(seconds_per_call(calls));
  std::sort(seconds.begin(), seconds.end());
  const std::size_t middle = seconds.size() / 2;
  return seconds.size() % 2 == 1 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
}

std::string time_text(double seconds) {
  const double value = seconds < 1e-3 ? seconds * 1e6 : seconds < 1 ? seconds * 1e3 : seconds;
  const char* const unit = seconds < 1e-3 ? "us" : seconds < 1 ? "ms" : "s";
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value, unit);
  return text;
}

}  // namespace qattn::command
