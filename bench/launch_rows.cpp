// What a call on the tiny problem costs: the device (graph/...) and the host (host/...).
#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "cuda_check.hpp"
#include "cuda_kernels.hpp"
#include "cuda_rows.hpp"

namespace qattn::bench {
namespace {

/// A stream of its own: the legacy default stream cannot be captured.
class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// `count` calls of `launch`, one after another, as a graph.
class Graph {
 public:
  Graph(const Stream& stream, int count, const std::function<void()>& launch) {
    check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < count; ++i) launch();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
    const cudaError_t error = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "cudaGraphInstantiate");
  }
  ~Graph() { cudaGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void replay(const Stream& stream) const {
    check(cudaGraphLaunch(executable_, stream.get()), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

struct LaunchRow {
  std::string kernel;
  Precision precision;
  Extents extents;
};

/// A call of forward() for the row on a stream.
std::function<void()> call_of(const LaunchRow& row, Tensors& tensors, const Stream& stream) {
  Options options;
  options.kernel = row.kernel;
  options.precision = row.precision;
  return [device = Device::cuda(0, stream.get()), q = tensors.q(), k = tensors.k(), v = tensors.v(),
          out = tensors.out(), options] { forward(device, q, k, v, out, options); };
}

void run_graph(benchmark::State& state, TensorCache& cache, const LaunchRow& row) {
  constexpr int kLaunches = 100;
  // Enough that the way of the first replay to the device does not count.
  constexpr int kReplays = 10;
  const Stream stream;
  const std::function<void()> call = call_of(row, cache.get(Device::cuda(), row.extents), stream);
  call();  // loads the kernel
  const Graph graph(stream, kLaunches, call);
  graph.replay(stream);
  Event start;
  Event stop;
  while (state.KeepRunningBatch(kLaunches * kReplays)) {
    start.record(stream.get());
    for (int i = 0; i < kReplays; ++i) graph.replay(stream);
    stop.record(stream.get());
    stop.wait();
    state.SetIterationTime(stop.seconds_since(start));
  }
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Seconds of one of `count` calls on the host. The stream is empty before and after: what the
/// calls put on it never makes them wait.
double host_seconds(int count, const Stream& stream, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < count; ++i) call();
  const std::chrono::duration<double> taken = Clock::now() - start;
  stream.wait();
  return taken.count() / count;
}

void run_host(benchmark::State& state, TensorCache& cache, const LaunchRow& row) {
  constexpr int kLaunches = 20;
  constexpr int kRounds = 1000;
  const Stream stream;
  const std::function<void()> call = call_of(row, cache.get(Device::cuda(), row.extents), stream);
  const std::function<void()> bare = [&stream] { launch_nothing(stream.get()); };
  for (const std::function<void()>* warm : {&call, &bare}) host_seconds(kLaunches, stream, *warm);
  std::vector<double> calls;
  std::vector<double> bares;
  for ([[maybe_unused]] auto _ : state) {
    // In turn, so that what disturbs the machine hits both.
    for (int round = 0; round < kRounds; ++round) {
      calls.push_back(host_seconds(kLaunches, stream, call));
      bares.push_back(host_seconds(kLaunches, stream, bare));
    }
    state.SetIterationTime(std::max(median(calls) - median(bares), 0.0));
  }
  state.counters["forward_us"] = 1e6 * median(calls);
  state.counters["bare_us"] = 1e6 * median(bares);
}

}  // namespace

void register_launch_rows(TensorCache& cache) {
  const Extents tiny = square(2, 72, 4, 32);
  for (const std::string& kernel : usable_kernels(Device::cuda())) {
    for (const Precision precision : {Precision::high, Precision::fast}) {
      const LaunchRow row{kernel, precision, tiny};
      const std::string name =
          "/" + kernel + "/" + to_string(precision) + "/causal/" + square_name(tiny);
      add_row(
          "graph" + name, [&cache, row](benchmark::State& state) { run_graph(state, cache, row); },
          Clock::cuda_events);
      add_row(
          "host" + name, [&cache, row](benchmark::State& state) { run_host(state, cache, row); },
          Clock::cuda_events)
          ->Iterations(1);
    }
  }
}

}  // namespace qattn::bench
