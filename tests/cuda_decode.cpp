// Split decoding on CUDA beside its numbers: workspace, graphs, batches beyond one launch.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "support/cuda_helpers.hpp"
#include "support/device_inputs.hpp"
#include "support/kernel_param.hpp"
#include "support/oracle.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"

namespace qattn::test {
namespace {

using verify::Dimensions;
using verify::HostProblem;
using verify::Result;

constexpr Precision kPrecisions[] = {Precision::high, Precision::fast};

// Device memory of the caller's: `used` bytes that are filled with one value, and a border that
// stays as it is.
class Workspace {
 public:
  Workspace(const Device& device, std::size_t used, std::byte fill)
      : used_(used), memory_(device, used + kBorder) {
    std::vector<std::byte> bytes(memory_.size(), fill);
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(used), bytes.end(), kBorderFill);
    memory_.copy_from(bytes.data());
  }
  void set(Options* options) {
    options->workspace = memory_.data();
    options->workspace_bytes = used_;
  }
  void expect_border_kept() const {
    std::vector<std::byte> bytes(memory_.size());
    memory_.copy_to(bytes.data());
    EXPECT_TRUE(std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(used_), bytes.end(),
                            [](std::byte b) { return b == kBorderFill; }))
        << "written past the end of the workspace";
  }
  void expect_all(std::byte value) const {
    std::vector<std::byte> bytes(memory_.size());
    memory_.copy_to(bytes.data());
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(used_),
                            [value](std::byte b) { return b == value; }))
        << "a workspace that is too small was written to";
  }

 private:
  static constexpr std::size_t kBorder = 4096;
  static constexpr std::byte kBorderFill{0x5A};
  std::size_t used_;
  Buffer<std::byte> memory_;
};

class CudaDecode : public KernelTest {
 protected:
  std::size_t needed(const HostProblem& problem) {
    return workspace_bytes(kernel().device, problem.q_view(), problem.k_view(), problem.v_view(),
                           OutputTensor(nullptr, problem.out_shape()),
                           problem.options(Precision::high, kernel().name));
  }

  Result run(const HostProblem& problem, Precision precision, Workspace* workspace) {
    const DeviceInputs inputs(kernel().device, problem);
    BorderedFloats out(kernel().device, problem.out_size());
    BorderedFloats lse(kernel().device, problem.lse_size());
    Options options = problem.options(precision, kernel().name);
    options.lse = lse.data();
    if (workspace != nullptr) workspace->set(&options);
    forward(kernel().device, inputs.q(), inputs.k(), inputs.v(),
            OutputTensor(out.data(), problem.out_shape()), options);
    return {out.take("out"), lse.take("lse")};
  }

  static HostProblem problem(const Dimensions& dimensions, std::uint64_t index = 0) {
    return verify::random_problem(dimensions, Mask::causal(), case_seed(index));
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, CudaDecode, testing::ValuesIn(cuda_kernels()), test_name);

TEST_P(CudaDecode, SmallProblemsAndPrefillNeedNoWorkspace) {
  for (const Dimensions& d : {Dimensions{2, 72, 72, 4, 4, 32},
                              {64, 1, 512, 64, 8, 128},
                              {1, 2000, 2000, 4, 4, 64},
                              {1, 1, 0, 4, 4, 64}}) {
    EXPECT_EQ(needed(blank_problem(d, Mask::causal())), 0U) << d.to_string();
  }
}

TEST_P(CudaDecode, WorkspaceStaysFarBelowKeysAndValues) {
  for (const Dimensions& d :
       {Dimensions{1, 1, 32768, 32, 32, 128}, {4, 1, 8192, 32, 8, 128}, {2, 4, 4096, 16, 4, 64}}) {
    const std::size_t bytes = needed(blank_problem(d, Mask::causal()));
    EXPECT_GT(bytes, 0U) << d.to_string();
    EXPECT_LT(bytes, static_cast<std::size_t>(2 * d.batch * d.seq_k * d.heads_kv * d.head_dim / 10))
        << d.to_string();
  }
}

TEST_P(CudaDecode, WhoseWorkspaceItIsChangesNoBit) {
  std::uint64_t seed = 0;
  for (const Dimensions& d : {Dimensions{1, 1, 20000, 8, 2, 128},
                              {5, 2, 1500, 8, 2, 64},
                              {3, 1, 2049, 16, 1, 256},
                              {2, 5, 1025, 7, 1, 192},
                              {2, 3, 3000, 2, 2, 32}}) {
    const HostProblem shape = problem(d, seed++);
    for (const Precision precision : kPrecisions) {
      SCOPED_TRACE(describe(shape, precision));
      const Result expected = run(shape, precision, nullptr);
      for (const std::byte fill : {std::byte{0}, std::byte{0xFF}}) {
        Workspace enough(kernel().device, needed(shape), fill);
        expect_same_bits(run(shape, precision, &enough), expected);
        enough.expect_border_kept();
        Workspace too_small(kernel().device, needed(shape) - 1, fill);
        expect_same_bits(run(shape, precision, &too_small), expected);
        too_small.expect_border_kept();
        too_small.expect_all(fill);
      }
    }
  }
}

// On both sides of the length from which splits are longer.
TEST_P(CudaDecode, LongSequencesAloneAndInABatch) {
  std::uint64_t seed = 50;
  for (const std::int64_t seq_k : {16384, 16385, 17000}) {
    for (const std::int64_t seq_q : {1, 5}) {
      const HostProblem both = problem({2, seq_q, seq_k, 4, 2, 64}, seed++);
      SCOPED_TRACE(describe(both, Precision::high));
      const Result result = run(both, Precision::high, nullptr);
      expect_close(kernel(), both, result, oracle(both), Precision::high);
      const Result first = run(batch_entry(both, 0), Precision::high, nullptr);
      const auto size = static_cast<std::ptrdiff_t>(first.out.size());
      expect_same_bits(first.out, {result.out.begin(), result.out.begin() + size}, "out");
    }
  }
}

TEST_P(CudaDecode, RunsRepeat) {
  const HostProblem shape = problem({8, 1, 5000, 16, 4, 128});
  const Result expected = run(shape, Precision::high, nullptr);
  for (int i = 0; i < 20; ++i) {
    expect_same_bits(run(shape, Precision::high, nullptr), expected);
    if (HasFailure()) return;
  }
}

TEST_P(CudaDecode, PrecisionsHaveTheSameBits) {
  const HostProblem shape = problem({2, 1, 3000, 8, 2, 128});
  expect_same_bits(run(shape, Precision::fast, nullptr), run(shape, Precision::high, nullptr));
}

// With the caller's workspace a graph holds kernels and nothing else, and replays follow the data.
TEST_P(CudaDecode, GraphsWithACallersWorkspace) {
  const HostProblem before = problem({2, 2, 3000, 8, 2, 128}, 1);
  HostProblem after = before;
  std::reverse(after.q.begin(), after.q.end());
  const Result expected = run(after, Precision::high, nullptr);

  const Stream stream;
  DeviceInputs inputs(stream.device(), before);
  BorderedFloats out(stream.device(), before.out_size());
  BorderedFloats lse(stream.device(), before.lse_size());
  Workspace workspace(stream.device(), needed(before), std::byte{0xFF});
  Options options = before.options(Precision::high, kernel().name);
  options.lse = lse.data();
  workspace.set(&options);
  expect_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "capture");
  forward(stream.device(), inputs.q(), inputs.k(), inputs.v(),
          OutputTensor(out.data(), before.out_shape()), options);
  Graph graph(stream);
  EXPECT_EQ(graph.kernel_names().size(), 2U);
  EXPECT_EQ(graph.node_count(), 2U) << "a graph that allocates";
  graph.replay(stream);
  inputs.q_data().copy_from(after.q.data());
  for (int i = 0; i < 3; ++i) graph.replay(stream);
  expect_same_bits({out.take("out"), lse.take("lse")}, expected);
  workspace.expect_border_kept();
}

// So many partial results that the batch takes several launches, which use the same workspace.
TEST_P(CudaDecode, BatchesBeyondOneWorkspace) {
  const HostProblem shape = problem({300, 64, 1025, 1, 1, 256});
  const std::size_t bytes = needed(shape);
  EXPECT_LE(bytes, std::size_t{32} << 20U);
  Workspace workspace(kernel().device, bytes, std::byte{0xFF});
  const Result all = run(shape, Precision::high, &workspace);
  workspace.expect_border_kept();
  for (const std::int64_t b : {0, 1, 150, 168, 169, 170, 299}) {
    const Result alone = run(batch_entry(shape, b), Precision::high, nullptr);
    const auto out = static_cast<std::ptrdiff_t>(alone.out.size());
    const auto lse = static_cast<std::ptrdiff_t>(alone.lse.size());
    expect_same_bits(alone.out, {all.out.begin() + b * out, all.out.begin() + (b + 1) * out},
                     "out");
    expect_same_bits(alone.lse, {all.lse.begin() + b * lse, all.lse.begin() + (b + 1) * lse},
                     "lse");
  }
}

}  // namespace
}  // namespace qattn::test
