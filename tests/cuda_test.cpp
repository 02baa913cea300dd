// The CUDA path beside its numbers: streams, graphs, devices, staging, errors, memory.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/child.hpp"
#include "support/cuda_helpers.hpp"
#include "support/device_inputs.hpp"
#include "support/kernel_param.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"
#include "verify/host_problem.hpp"

namespace qattn::test {
namespace {

using std::chrono::steady_clock;
using verify::Dimensions;
using verify::HostProblem;
using verify::PlacedProblem;
using verify::Result;

class Cuda : public KernelTest {
 protected:
  static HostProblem problem(std::uint64_t index = 0) {
    return verify::random_problem({2, 65, 300, 4, 2, 64}, Mask::causal(), case_seed(index));
  }
  // A decode step whose keys are worth splitting.
  static HostProblem decode(std::uint64_t index = 0) {
    return verify::random_problem({1, 1, 20000, 8, 2, 128}, Mask::causal(), case_seed(index));
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Cuda, testing::ValuesIn(cuda_kernels()), test_name);

// Blocks a stream until it is released, for ten seconds at most.
struct Gate {
  std::atomic<bool> open{false};
  static void wait(void* gate) {
    const auto deadline = steady_clock::now() + std::chrono::seconds(10);
    while (!static_cast<Gate*>(gate)->open && steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
  }
};

TEST_P(Cuda, WorkGoesOnTheGivenStreamAlone) {
  for (const HostProblem& shape : {problem(), decode()}) {
    const Result expected = run_guarded(kernel(), shape);  // loads the kernel
    const Stream stream;
    HostProblem stale = shape;
    std::fill(stale.q.begin(), stale.q.end(), std::int8_t{0});
    const Pinned<std::int8_t> fresh_q(shape.q);
    DeviceInputs inputs(stream.device(), stale);
    Buffer<float> out(stream.device(), expected.out.size());
    const Pinned<float> result(std::vector<float>(expected.out.size(), 0.0F));

    Gate gate;
    expect_cuda(cudaLaunchHostFunc(stream.get(), Gate::wait, &gate), "gate");
    expect_cuda(cudaMemcpyAsync(inputs.q_data().data(), fresh_q.data(), fresh_q.size(),
                                cudaMemcpyHostToDevice, stream.get()),
                "fresh q");
    const auto start = steady_clock::now();
    forward(stream.device(), inputs.q(), inputs.k(), inputs.v(),
            OutputTensor(out.data(), shape.out_shape()),
            shape.options(Precision::high, kernel().name));
    const auto taken = steady_clock::now() - start;
    expect_cuda(cudaMemcpyAsync(result.data(), out.data(), result.size() * sizeof(float),
                                cudaMemcpyDeviceToHost, stream.get()),
                "result");
    gate.open = true;
    stream.wait();
    EXPECT_LT(taken, std::chrono::seconds(5)) << "forward() waited for the stream";
    expect_same_bits(result.values(), expected.out, "out");
  }
}

TEST_P(Cuda, StreamsDoNotShareScratch) {
  const HostProblem a = decode(1);
  const HostProblem b = decode(2);
  const Result expected_a = run_guarded(kernel(), a);
  const Result expected_b = run_guarded(kernel(), b);
  const Stream stream_a;
  const Stream stream_b;
  PlacedProblem placed_a(a, stream_a.device());
  PlacedProblem placed_b(b, stream_b.device());
  for (int i = 0; i < 50; ++i) {
    placed_a.forward(Precision::high, kernel().name);
    placed_b.forward(Precision::high, kernel().name);
  }
  expect_same_bits(placed_a.result(), expected_a);
  expect_same_bits(placed_b.result(), expected_b);
}

TEST_P(Cuda, RunsRepeatUnderLoad) {
  const Stream stream;
  const Stream other;
  const HostProblem load = decode(1);
  PlacedProblem loading(load, other.device());
  for (const HostProblem& shape : {problem(), decode()}) {
    PlacedProblem placed(shape, stream.device());
    const Result expected = run_guarded(kernel(), shape);
    for (int i = 0; i < 200; ++i) {
      loading.forward(Precision::fast, kernel().name);
      placed.forward(Precision::high, kernel().name);
      expect_same_bits(placed.result(), expected);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Cuda, CapturedGraphsReplay) {
  for (const HostProblem& shape : {problem(), decode()}) {
    for (const Precision precision : {Precision::high, Precision::fast}) {
      RunSettings settings;
      settings.precision = precision;
      const Result expected = run_guarded(kernel(), shape, settings);
      const Stream stream;
      PlacedProblem placed(shape, stream.device());
      expect_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "capture");
      placed.forward(precision, kernel().name);
      Graph graph(stream);
      // Its own call, so that the kernel that ran is known by the name the linker gave it.
      const std::vector<std::string> names = graph.kernel_names();
      EXPECT_FALSE(names.empty());
      const std::string tag = kernel().name.substr(kernel().name.find('/') + 1);
      for (const std::string& name : names) {
        EXPECT_NE(name.find(tag), std::string::npos) << name << " is no kernel of " << tag;
      }
      for (int i = 0; i < 3; ++i) graph.replay(stream);
      expect_same_bits(placed.result(), expected);
    }
  }
}

TEST_P(Cuda, HostMemoryIsStagedAndTheCallWaits) {
  for (const HostProblem& shape : {problem(), decode()}) {
    const Result expected = run_guarded(kernel(), shape);
    Result got = expected;
    std::fill(got.out.begin(), got.out.end(), 0.0F);
    std::fill(got.lse.begin(), got.lse.end(), 0.0F);
    Options options = shape.options(Precision::high, kernel().name);
    options.lse = got.lse.data();
    forward(kernel().device, shape.q_view(), shape.k_view(), shape.v_view(),
            OutputTensor(got.out.data(), shape.out_shape()), options);
    expect_same_bits(got, expected);
  }
}

TEST_P(Cuda, StagingInsideCaptureIsAnError) {
  const HostProblem shape = problem();
  run_guarded(kernel(), shape);
  const Stream stream;
  PlacedProblem placed(shape, stream.device());
  std::vector<float> out(static_cast<std::size_t>(shape.out_size()), -1.0F);
  expect_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "capture");
  EXPECT_THROW(forward(stream.device(), shape.q_view(), shape.k_view(), shape.v_view(),
                       OutputTensor(out.data(), shape.out_shape()),
                       shape.options(Precision::high, kernel().name)),
               Error);
  placed.forward(Precision::high, kernel().name);  // the capture is still good
  Graph graph(stream);
  graph.replay(stream);
  expect_same_bits(placed.result(), run_guarded(kernel(), shape));
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float x) { return x == -1.0F; }));
}

TEST_P(Cuda, MixedPointersAreRefusedBeforeAnythingRuns) {
  const HostProblem shape = problem();
  const Device device = kernel().device;
  const Buffer<std::int8_t> k(device, shape.k.data(), shape.k.size());
  std::vector<float> out(static_cast<std::size_t>(shape.out_size()), -1.0F);
  const OutputTensor out_view(out.data(), shape.out_shape());
  const Options options = shape.options(Precision::high);
  Int8Tensor on_device = shape.k_view();
  on_device.data = k.data();
  for (const Device& target : {device, Device::cpu()}) {
    try {
      forward(target, shape.q_view(), on_device, shape.v_view(), out_view, options);
      FAIL() << "accepted by " << target.name();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("k.data"), std::string::npos) << error.what();
    }
  }
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float x) { return x == -1.0F; }));
  EXPECT_EQ(Device::for_data(k.data()), device);
}

TEST_P(Cuda, CurrentDeviceAndPendingErrorStayAsTheyWere) {
  const HostProblem shape = problem();
  const Result expected = run_guarded(kernel(), shape);
  PlacedProblem placed(shape, kernel().device);
  int count = 0;
  expect_cuda(cudaGetDeviceCount(&count), "count");
  for (int current = 0; current < count; ++current) {
    expect_cuda(cudaSetDevice(current), "set device");
    cudaSetDevice(999);  // an error of the caller's that nobody has looked at
    const cudaError_t pending = cudaPeekAtLastError();
    EXPECT_NE(pending, cudaSuccess);
    placed.forward(Precision::high, kernel().name);
    EXPECT_EQ(cudaPeekAtLastError(), pending) << "the caller's error was swallowed or replaced";
    EXPECT_THROW(forward(Device::cuda(99), shape.q_view(), shape.k_view(), shape.v_view(),
                         OutputTensor(nullptr, shape.out_shape()), {}),
                 Error);
    int after = -1;
    cudaGetLastError();
    expect_cuda(cudaGetDevice(&after), "get device");
    EXPECT_EQ(after, current);
    expect_same_bits(placed.result(), expected);
  }
  cudaSetDevice(0);
}

TEST_P(Cuda, SecondDeviceIsUsedWhileTheFirstIsCurrent) {
  int count = 0;
  expect_cuda(cudaGetDeviceCount(&count), "count");
  if (count < 2) GTEST_SKIP() << "one CUDA device";
  expect_cuda(cudaSetDevice(0), "set device");
  const HostProblem shape = problem();
  KernelCase second = kernel();
  second.device = Device::cuda(1);
  expect_same_bits(run_guarded(second, shape), run_guarded(kernel(), shape));
  const Buffer<float> on_first(Device::cuda(0), 16);
  EXPECT_EQ(Device::for_data(on_first.data()), Device::cuda(0));
}

TEST_P(Cuda, BatchesAndHeadsBeyondAGridDimension) {
  for (const Dimensions& d : {Dimensions{70000, 1, 1, 1, 1, 8},
                              {1, 1, 1, 70000, 70000, 8},
                              {300, 2, 2, 300, 100, 8},
                              {1, 200000, 1, 1, 1, 8}}) {
    HostProblem shape = blank_problem(d, Mask::full());
    for (std::size_t i = 0; i < shape.v.size(); ++i) {
      shape.v[i] = static_cast<std::int8_t>(i / 8 % 251 - 125);
    }
    if (d.seq_k > 1) std::fill(shape.v.begin(), shape.v.end(), std::int8_t{9});
    const Result result = run_guarded(kernel(), shape);
    for (std::int64_t b = 0; b < d.batch; ++b) {
      for (std::int64_t h = 0; h < d.heads_q; ++h) {
        const std::int64_t head_kv = h / (d.heads_q / d.heads_kv);
        const float expected = *v_row(&shape, b, 0, head_kv);
        for (std::int64_t i = 0; i < d.seq_q; ++i) {
          ASSERT_FLOAT_EQ(out_row(shape, result, b, i, h)[7], expected)
              << d.to_string() << " batch " << b << " head " << h;
        }
      }
    }
  }
}

// Shapes on both sides of where the tiny kernel ends: the choice must not depend on the batch.
TEST_P(Cuda, TinyProblemsHaveTheBitsOfTheirBatch) {
  std::uint64_t index = 0;
  for (const Dimensions& d : {Dimensions{500, 72, 72, 8, 8, 32},
                              {200, 33, 400, 8, 2, 64},
                              {60, 100, 500, 4, 4, 32},
                              {200, 20, 260, 8, 8, 128},
                              {300, 40, 129, 4, 4, 200},
                              {60, 300, 100, 8, 4, 77},
                              {70, 128, 128, 4, 4, 64},
                              {70, 16, 129, 8, 8, 64}}) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      const HostProblem batch = verify::random_problem(d, mask, case_seed(index++), 3.0);
      for (const Precision precision : {Precision::high, Precision::fast}) {
        SCOPED_TRACE(describe(batch, precision));
        RunSettings settings;
        settings.precision = precision;
        const Result whole = run_guarded(kernel(), batch, settings);
        for (const std::int64_t b : {std::int64_t{0}, d.batch / 2, d.batch - 1}) {
          const HostProblem part = batch_entry(batch, b);
          const Result alone = run_guarded(kernel(), part, settings);
          const auto out = whole.out.begin() + b * part.out_size();
          expect_same_bits(alone.out, {out, out + part.out_size()}, "out");
          const auto lse = whole.lse.begin() + b * part.lse_size();
          expect_same_bits(alone.lse, {lse, lse + part.lse_size()}, "lse");
        }
      }
    }
  }
}

TEST_P(Cuda, DeviceMemoryStaysFlat) {
  const auto sweep = [&] {
    for (std::int64_t i = 0; i < 150; ++i) {
      const Dimensions d{1, 1 + i % 5, 100 + 67 * i, 4, 2, 32 + i};
      run_guarded(kernel(), verify::random_problem(d, Mask::causal(), 1));
    }
  };
  sweep();
  std::size_t before = 0, after = 0, total = 0;
  expect_cuda(cudaMemGetInfo(&before, &total), "memory");
  for (int i = 0; i < 4; ++i) sweep();
  expect_cuda(cudaMemGetInfo(&after, &total), "memory");
  EXPECT_GE(after + (4U << 20), before) << "device memory was not given back";
}

TEST_P(Cuda, DefaultMemoryPoolIsNotAltered) {
  cudaMemPool_t pool = nullptr;
  expect_cuda(cudaDeviceGetDefaultMemPool(&pool, 0), "pool");
  std::uint64_t threshold_before = 0, threshold_after = 0, reserved = 0;
  expect_cuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold_before),
              "threshold");
  run_guarded(kernel(), decode());
  expect_cuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold_after),
              "threshold");
  expect_cuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &reserved), "reserved");
  EXPECT_EQ(threshold_after, threshold_before);
  EXPECT_EQ(reserved, 0U) << "the library allocated from the default pool";
}

TEST_P(Cuda, ManagedMemoryIsUsedInPlace) {
  const HostProblem shape = problem();
  const Result expected = run_guarded(kernel(), shape);
  float* out = nullptr;
  expect_cuda(cudaMallocManaged(&out, expected.out.size() * sizeof(float)), "managed");
  EXPECT_EQ(Device::for_data(out).kind(), Device::Kind::cuda);
  const DeviceInputs inputs(kernel().device, shape);
  forward(kernel().device, inputs.q(), inputs.k(), inputs.v(), OutputTensor(out, shape.out_shape()),
          shape.options(Precision::high, kernel().name));
  expect_cuda(cudaDeviceSynchronize(), "synchronise");
  expect_same_bits({out, out + expected.out.size()}, expected.out, "out");
  cudaFree(out);
}

// The first call of a process inside a capture of the strictest mode; then the process just ends.
int first_call_in_capture() {
  const Stream stream;
  const HostProblem shape = verify::random_problem({1, 1, 20000, 8, 2, 128}, Mask::causal(), 3);
  PlacedProblem placed(shape, stream.device());
  expect_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "capture");
  placed.forward(Precision::high);
  Graph graph(stream);
  graph.replay(stream);
  const Result got = placed.result();
  const Result expected = verify::run(shape, Device::cuda(), Precision::high);
  return got.out == expected.out && got.lse == expected.lse ? 0 : 1;
}
const ChildScenario capture_first("first_call_in_capture", first_call_in_capture);

int exit_from_another_thread() {
  verify::run(verify::random_problem({1, 1, 5000, 2, 1, 64}, Mask::causal(), 3), Device::cuda(),
              Precision::high);
  std::thread([] { std::exit(0); }).join();
  return 1;
}
const ChildScenario exit_elsewhere("exit_from_another_thread", exit_from_another_thread);

// Work on the CPU must leave a child free to use CUDA after a fork.
int cpu_then_fork_then_cuda() {
  const HostProblem shape = verify::random_problem({1, 9, 50, 2, 1, 64}, Mask::causal(), 3);
  verify::run(shape, Device::cpu(), Precision::high);
  Device::for_data(shape.q.data());
  const pid_t child = fork();
  if (child == 0) {
    verify::run(shape, Device::cuda(), Precision::high);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
const ChildScenario fork_then_cuda("cpu_then_fork_then_cuda", cpu_then_fork_then_cuda);

TEST_P(Cuda, InAProcessOfItsOwn) {
  for (const char* scenario :
       {"first_call_in_capture", "exit_from_another_thread", "cpu_then_fork_then_cuda"}) {
    const ChildResult child = run_child(scenario, {{"QATTN_KERNEL", kernel().name}}, 120);
    EXPECT_EQ(child.exit_code, 0) << scenario;
    EXPECT_EQ(child.output, "") << scenario;
  }
}

}  // namespace
}  // namespace qattn::test
