#include "cuda_rows.hpp"

#include <algorithm>
#include <cmath>

#include "cuda_check.hpp"
#include "cuda_kernels.hpp"

namespace qattn::bench {
namespace {

double time_launches(const std::function<void()>& launch, std::int64_t count, Event& start,
                     Event& stop) {
  start.record(nullptr);
  for (std::int64_t i = 0; i < count; ++i) launch();
  stop.record(nullptr);
  stop.wait();
  return stop.seconds_since(start);
}

void run_one_thread_per_query(benchmark::State& state, Tensors& tensors, const Mask& mask) {
  const Extents& extents = tensors.extents();
  PeerProblem problem;
  problem.q = static_cast<const std::int8_t*>(tensors.q().data);
  problem.k = static_cast<const std::int8_t*>(tensors.k().data);
  problem.v = static_cast<const std::int8_t*>(tensors.v().data);
  problem.q_scale = tensors.q().scale.data;
  problem.k_scale = tensors.k().scale.data;
  problem.v_scale = tensors.v().scale.data;
  problem.out = static_cast<float*>(tensors.out().data);
  problem.batch = extents.batch;
  problem.seq = extents.seq_q;
  problem.heads = extents.heads_q;
  problem.head_dim = extents.head_dim;
  problem.causal = mask.kind == Mask::Kind::causal;

  launch_one_thread_per_query(problem);
  const std::string difference = difference_from_library(tensors, mask, tensors.out_on_host());
  if (!difference.empty()) return state.SkipWithError(difference.c_str());
  time_on_cuda(state, [&] { launch_one_thread_per_query(problem); });
  count_operations(state, extents.operations(problem.causal), 1);
}

void run_wgmma_s8(benchmark::State& state) {
  Buffer<std::int32_t> sink(Device::cuda(), 1);
  double operations = 0;
  time_on_cuda(state, [&] { operations = launch_wgmma_s8(sink.data()); });
  count_operations(state, operations, 1);
}

/// Capability 9.0 and no other has the instruction.
bool has_wgmma() {
  for (const std::string& kernel : usable_kernels(Device::cuda())) {
    if (kernel == "cuda/sm90") return true;
  }
  return false;
}

void run_device_read(benchmark::State& state) {
  constexpr std::int64_t kBytes = std::int64_t{2} << 30;  // many times what the L2 cache holds
  const Device device = Device::cuda();
  Buffer<std::int8_t> memory(device, kBytes);
  Buffer<std::uint32_t> sink(device, 1);
  std::vector<std::int8_t> random(std::size_t{1} << 20);
  fill_random(random.data(), static_cast<std::int64_t>(random.size()), 0);
  // Real data everywhere: some memory systems compress what is equal.
  for (std::int64_t offset = 0; offset < kBytes; offset += std::ssize(random)) {
    check(cudaMemcpy(memory.data() + offset, random.data(), random.size(), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  time_on_cuda(state, [&] { launch_device_read(memory.data(), kBytes, sink.data()); });
  count_bytes(state, static_cast<double>(kBytes), 1);
}

}  // namespace

void time_on_cuda(benchmark::State& state, const std::function<void()>& launch) {
  // Long enough for the events and the first launch to vanish next to it.
  constexpr double kBatchSeconds = 1e-3;
  constexpr double kLaunchesMax = 500;
  Event start;
  Event stop;
  time_launches(launch, 1, start, stop);  // loads the kernel
  const double once = time_launches(launch, 1, start, stop);
  const auto batch =
      static_cast<std::int64_t>(std::clamp(std::ceil(kBatchSeconds / once), 1.0, kLaunchesMax));
  while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(batch))) {
    // Google Benchmark divides the sum of these times by the number of launches.
    state.SetIterationTime(time_launches(launch, batch, start, stop));
  }
}

void register_cuda_ceiling_rows() {
  if (usable_kernels(Device::cuda()).empty()) return;
  add_row("ceiling/device_read", run_device_read, Clock::cuda_events);
  if (has_wgmma()) add_row("ceiling/wgmma_s8", run_wgmma_s8, Clock::cuda_events);
}

void register_one_thread_per_query_rows(TensorCache& cache, const Extents& extents,
                                        const Mask& mask) {
  add_row(
      "peer/one_thread_per_query/" + to_string(mask) + "/" + square_name(extents),
      [&cache, extents, mask](benchmark::State& state) {
        run_one_thread_per_query(state, cache.get(Device::cuda(), extents), mask);
      },
      Clock::cuda_events);
}

}  // namespace qattn::bench
