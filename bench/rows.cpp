#include "rows.hpp"

#include <omp.h>

#include <cmath>
#include <exception>
#include <utility>

namespace qattn::bench {

double Extents::operations(bool causal) const {
  const double all = 4.0 * static_cast<double>(batch) * static_cast<double>(heads_q) *
                     static_cast<double>(seq_q) * static_cast<double>(seq_k) *
                     static_cast<double>(head_dim);
  return causal ? all / 2 : all;
}

double Extents::key_value_bytes() const {
  return 2.0 * static_cast<double>(batch) * static_cast<double>(heads_kv) *
         static_cast<double>(seq_k) * static_cast<double>(head_dim);
}

Extents square(std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t head_dim) {
  return {batch, seq, seq, heads, heads, head_dim};
}

std::string extents_name(std::initializer_list<std::pair<const char*, std::int64_t>> parts) {
  std::string name;
  for (const auto& [label, extent] : parts) name.append(label).append(std::to_string(extent));
  return name;
}

std::string square_name(const Extents& extents) {
  return extents_name({{"B", extents.batch},
                       {"xS", extents.seq_q},
                       {"xH", extents.heads_q},
                       {"xD", extents.head_dim}});
}

int thread_count(Threads threads) { return threads == Threads::one ? 1 : omp_get_max_threads(); }

std::string first_word(const std::string& word, Threads threads) {
  return threads == Threads::one ? word + "_1" : word;
}

benchmark::internal::Benchmark* add_row(const std::string& name,
                                        std::function<void(benchmark::State&)> run, Clock clock) {
  const auto guarded = [run = std::move(run)](benchmark::State& state) {
    try {
      run(state);
    } catch (const std::exception& error) {
      state.SkipWithError(error.what());
    }
  };
  auto* added = benchmark::RegisterBenchmark(name.c_str(), guarded)->Unit(benchmark::kMicrosecond);
  return clock == Clock::cuda_events ? added->UseManualTime() : added->UseRealTime();
}

void count_operations(benchmark::State& state, double operations_per_iteration, int threads) {
  state.counters["TOPS"] = benchmark::Counter(operations_per_iteration * 1e-12,
                                              benchmark::Counter::kIsIterationInvariantRate);
  state.counters["threads"] = threads;
}

void count_bytes(benchmark::State& state, double bytes_per_iteration, int threads) {
  state.counters["GBps"] =
      benchmark::Counter(bytes_per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["threads"] = threads;
}

std::vector<std::string> usable_kernels(const Device& device) {
  std::vector<std::string> names;
  for (const KernelStatus& status : kernels(device)) {
    if (status.usable && status.name.rfind("reference/", 0) != 0) names.push_back(status.name);
  }
  return names;
}

std::string to_string(Precision precision) {
  return precision == Precision::high ? "high" : "fast";
}

std::string to_string(const Mask& mask) {
  return mask.kind == Mask::Kind::causal ? "causal" : "full";
}

std::string difference_from_library(Tensors& tensors, const Mask& mask,
                                    const std::vector<float>& peer_out) {
  Options options;
  options.mask = mask;
  forward(tensors.device(), tensors.q(), tensors.k(), tensors.v(), tensors.out(), options);
  const std::vector<float> expected = tensors.out_on_host();
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = static_cast<double>(peer_out[i]) - static_cast<double>(expected[i]);
    error += difference * difference;
    norm += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  // The library's contract at high precision is 5e-4; the peer's own error is far below it.
  constexpr double kBound = 5e-4;
  const double relative = std::sqrt(error / norm);
  if (relative <= kBound) return {};
  return "the peer's result differs from the library's by " + std::to_string(relative);
}

}  // namespace qattn::bench
