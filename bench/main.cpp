// qattn_bench: how fast every usable kernel is, next to what this machine could do at most and to
// what a plain float32 implementation does, all measured in one run (docs/benchmarking.md).
#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cuda_rows.hpp"
#include "qattn/version.hpp"
#include "rows.hpp"

namespace {

/// What a reader of the JSON output must know about the machine.
void add_context() {
  const qattn::MachineInfo machine = qattn::machine_info();
  std::string features;
  for (const std::string& feature : machine.cpu_features) {
    features += (features.empty() ? "" : " ") + feature;
  }
  benchmark::AddCustomContext("qattn", qattn::version());
  benchmark::AddCustomContext("cpu", machine.cpu);
  benchmark::AddCustomContext("cpu_features", features);
  benchmark::AddCustomContext("threads", std::to_string(machine.cpu_threads));
  benchmark::AddCustomContext(
      "cuda", machine.cuda_devices.empty() ? machine.cuda : machine.cuda_devices.front().name);
}

// Since version 1.8 Google Benchmark wants a unit after a minimum time, before it takes none. The
// flag changed together with this function, which reports what the flag asked for.
template <typename Reporter>
concept TakesUnits = requires(Reporter& reporter) {
  reporter.ReportRunsConfig(0.2, false, 0);
};
constexpr const char* kMinTime = TakesUnits<benchmark::BenchmarkReporter>
                                     ? "--benchmark_min_time=0.2s"
                                     : "--benchmark_min_time=0.2";

int run(int argc, char** argv) {
  // Many rows: a shorter time for each than the library's default. A flag of the user's wins, since
  // it comes later.
  std::string min_time = kMinTime;
  std::vector<char*> arguments = {argv[0], min_time.data()};
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;

  add_context();
  qattn::bench::TensorCache cache;
  qattn::bench::register_ceiling_rows();
  qattn::bench::register_memory_rows();
  qattn::bench::register_cuda_ceiling_rows();
  qattn::bench::register_forward_rows(cache);
  qattn::bench::register_decode_rows(cache);
  qattn::bench::register_launch_rows(cache);
  const std::size_t rows = benchmark::RunSpecifiedBenchmarks();
  cache.clear();
  benchmark::Shutdown();
  return rows == 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "qattn_bench: %s\n", error.what());
    return 1;
  }
}
