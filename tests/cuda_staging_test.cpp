// Host memory staged through the device: the plan and the copying on any machine, the whole on one
// with a GPU.
#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "cuda/staging/plan.hpp"
#include "support/cuda_helpers.hpp"
#include "support/kernel_param.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"
#include "support/short_floats.hpp"

namespace qattn::test {
namespace {

using cuda::staging::HostRows;
using cuda::staging::Part;
using cuda::staging::Plan;
using verify::Dimensions;
using verify::HostProblem;
using verify::Result;

// --- without a device ---

// Addresses of all bytes of a tensor, in its order.
std::vector<std::ptrdiff_t> offsets_of(const Shape& s, const Strides& t, std::int64_t bytes) {
  std::vector<std::ptrdiff_t> offsets;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t i = 0; i < s.seq; ++i) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        for (std::int64_t d = 0; d < s.head_dim * bytes; ++d) {
          offsets.push_back((b * t.batch + i * t.seq + h * t.heads) * bytes + d);
        }
      }
    }
  }
  return offsets;
}

TEST(StagedRows, AnyPartOfAnyLayoutIsCopied) {
  const Shape shape{3, 4, 5, 6};
  for (const Strides& strides :
       {contiguous_strides(shape), Strides{200, 30, 7}, Strides{120, 6, 24}, Strides{30, 90, 6},
        Strides{400, 33, 6}, Strides{150, 37, 7}, Strides{5, 3, 1}}) {
    for (const std::int64_t bytes : {1, 2, 4}) {
      std::vector<std::byte> memory(8000);
      for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7);
      const HostRows rows = cuda::staging::rows_of(memory.data(), shape, strides, bytes);
      const auto offsets = offsets_of(shape, strides, bytes);
      ASSERT_EQ(rows.bytes(), static_cast<std::int64_t>(offsets.size()));
      EXPECT_EQ(rows.end() - memory.data(), *std::max_element(offsets.begin(), offsets.end()) + 1);
      std::mt19937_64 random(base_seed());
      for (int i = 0; i < 200; ++i) {
        auto begin = static_cast<std::int64_t>(random() % (offsets.size() + 1));
        auto end = static_cast<std::int64_t>(random() % (offsets.size() + 1));
        if (begin > end) std::swap(begin, end);
        std::vector<std::byte> packed(static_cast<std::size_t>(end - begin));
        gather(rows, begin, end, packed.data());
        for (std::int64_t x = begin; x < end; ++x) {
          ASSERT_EQ(packed[static_cast<std::size_t>(x - begin)],
                    memory[static_cast<std::size_t>(offsets[static_cast<std::size_t>(x)])]);
        }
        std::fill(packed.begin(), packed.end(), static_cast<std::byte>(i));
        std::vector<std::byte> expected = memory;
        for (std::int64_t x = begin; x < end; ++x) {
          expected[static_cast<std::size_t>(offsets[static_cast<std::size_t>(x)])] =
              static_cast<std::byte>(i);
        }
        scatter(rows, begin, end, packed.data());
        ASSERT_EQ(memory, expected) << begin << " to " << end;
      }
    }
  }
}

TEST(StagedRows, AreAsLongAsTheyCanBe) {
  const Shape shape{3, 4, 5, 6};
  EXPECT_TRUE(cuda::staging::rows_of(nullptr, shape, contiguous_strides(shape), 4).is_packed());
  EXPECT_EQ(cuda::staging::rows_of(nullptr, shape, {160, 40, 6}, 1).row_bytes, 30);
  EXPECT_EQ(cuda::staging::rows_of(nullptr, shape, {160, 40, 6}, 1).count[2], 12);
  EXPECT_EQ(cuda::staging::rows_of(nullptr, shape, {200, 40, 6}, 1).count[1], 3);
}

// Every byte of the problem belongs to one part, and every part to memory of its own.
TEST(StagedPlan, PartsCoverTheProblemOnce) {
  for (const Dimensions& d : {Dimensions{1, 30, 50, 12, 6, 16}, Dimensions{5, 3, 7, 4, 4, 8},
                              Dimensions{9, 2, 0, 6, 3, 8}, Dimensions{2, 8, 9, 10, 5, 40},
                              Dimensions{1, 64, 64, 7, 1, 32}}) {
    const HostProblem host = verify::random_problem(d, Mask::causal(), case_seed(0));
    std::vector<float> out(static_cast<std::size_t>(host.out_size()));
    std::vector<float> lse(static_cast<std::size_t>(host.lse_size()));
    Options options = host.options(Precision::high);
    options.lse = lse.data();
    const core::Problem problem =
        core::make_problem(host.q_view(), host.k_view(), host.v_view(),
                           OutputTensor(out.data(), host.out_shape()), options);
    for (const std::size_t most : {std::size_t{1}, std::size_t{3}, std::size_t{8}}) {
      const Plan plan(problem, 64, most);
      std::vector<int> out_bytes(out.size() * 4), lse_bytes(lse.size() * 4), q_bytes(host.q.size()),
          k_bytes(host.k.size()), device_bytes(plan.bytes());
      const auto mark = [&](const cuda::staging::StagedTensor& tensor, std::vector<int>& bytes,
                            const void* base) {
        // Counts through a map of the same layout.
        std::vector<std::byte> map(bytes.size()),
            ones(static_cast<std::size_t>(tensor.rows.bytes()), std::byte{1});
        HostRows rows = tensor.rows;
        if (rows.bytes() == 0) return;
        rows.data = map.data() + (rows.data - static_cast<const std::byte*>(base));
        scatter(rows, 0, rows.bytes(), ones.data());
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] += static_cast<int>(map[i]);
        for (std::size_t i = 0; i < ones.size(); ++i) ++device_bytes.at(tensor.offset + i);
      };
      for (const Part& part : plan.parts()) {
        mark(part.inputs[0], q_bytes, host.q.data());
        mark(part.inputs[1], k_bytes, host.k.data());
        mark(part.outputs[0], out_bytes, out.data());
        mark(part.outputs[1], lse_bytes, lse.data());
        EXPECT_EQ(part.problem.group_size(), problem.group_size());
      }
      EXPECT_LE(plan.parts().size(), 2 * most) << d.to_string();
      for (const auto* bytes : {&out_bytes, &lse_bytes, &q_bytes, &k_bytes}) {
        EXPECT_TRUE(std::all_of(bytes->begin(), bytes->end(), [](int n) { return n == 1; }))
            << d.to_string() << ", " << most << " parts";
      }
      EXPECT_TRUE(
          std::all_of(device_bytes.begin(), device_bytes.end(), [](int n) { return n < 2; }));
    }
  }
}

// --- with one ---

class CudaStaging : public KernelTest {
 protected:
  // Problems of more than one buffer and more than one part.
  static std::vector<HostProblem> problems() {
    const Dimensions dimensions[] = {{1, 1500, 2500, 16, 4, 128}, {3, 1777, 1999, 6, 3, 72},
                                     {40, 150, 170, 8, 2, 64},    {1, 9000, 1000, 4, 1, 80},
                                     {1, 1, 60000, 8, 8, 128},    {2, 3001, 2000, 5, 5, 33}};
    std::vector<HostProblem> problems;
    std::uint64_t index = 0;
    for (const Dimensions& d : dimensions) {
      problems.push_back(verify::random_problem(d, index % 2 == 0 ? Mask::causal() : Mask::full(),
                                                case_seed(index)));
      ++index;
    }
    return problems;
  }

  static Result empty_result(const HostProblem& problem) {
    return {std::vector<float>(static_cast<std::size_t>(problem.out_size()), -7.0F),
            std::vector<float>(static_cast<std::size_t>(problem.lse_size()), -7.0F)};
  }

  Result run_staged(const HostProblem& problem, const Device& device) const {
    Result got = empty_result(problem);
    Options options = problem.options(Precision::high, kernel().name);
    options.lse = got.lse.data();
    forward(device, problem.q_view(), problem.k_view(), problem.v_view(),
            OutputTensor(got.out.data(), problem.out_shape()), options);
    return got;
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, CudaStaging, testing::ValuesIn(cuda_kernels()), test_name);

TEST_P(CudaStaging, LargeProblemsGiveTheBitsOfTheDevice) {
  for (const HostProblem& problem : problems()) {
    SCOPED_TRACE(problem.dimensions.to_string());
    const Result expected = run_guarded(kernel(), problem);
    const Stream stream;
    expect_same_bits(run_staged(problem, kernel().device), expected);
    expect_same_bits(run_staged(problem, stream.device()), expected);
    expect_same_bits(run_staged(problem, Device::cuda(0, cudaStreamPerThread)), expected);
    if (HasFailure()) return;
  }
}

// Inputs with gaps, an output with gaps whose other bytes stay, of every type.
TEST_P(CudaStaging, LargeStridedProblems) {
  const HostProblem problem =
      verify::random_problem({2, 2100, 2300, 8, 4, 100}, Mask::causal(), case_seed(0));
  const Dimensions& d = problem.dimensions;
  const Result expected = run_guarded(kernel(), problem);
  // (batch, heads, seq, head_dim + 12) in memory.
  const auto layout = [&](std::int64_t heads, std::int64_t seq) {
    const std::int64_t row = d.head_dim + 12;
    return Strides{heads * seq * row, row, seq * row};
  };
  const auto spread = [&](const std::vector<std::int8_t>& packed, const Int8Tensor& view) {
    const Strides strides = layout(view.shape.heads, view.shape.seq);
    std::vector<std::int8_t> memory(static_cast<std::size_t>(view.shape.batch * strides.batch), 99);
    const HostRows rows = cuda::staging::rows_of(memory.data(), view.shape, strides, 1);
    scatter(rows, 0, rows.bytes(), reinterpret_cast<const std::byte*>(packed.data()));
    return memory;
  };
  const auto q = spread(problem.q, problem.q_view());
  const auto k = spread(problem.k, problem.k_view());
  const auto v = spread(problem.v, problem.v_view());
  const auto view = [&](Int8Tensor tensor, const std::vector<std::int8_t>& memory) {
    tensor.data = memory.data();
    tensor.strides = layout(tensor.shape.heads, tensor.shape.seq);
    return tensor;
  };
  const Strides strides = layout(d.heads_q, d.seq_q);
  for (const DataType type : {DataType::float32, DataType::float16, DataType::bfloat16}) {
    const std::int64_t bytes = type == DataType::float32 ? 4 : 2;
    std::vector<std::byte> out(static_cast<std::size_t>(d.batch * strides.batch * bytes),
                               std::byte{0x5A});
    std::vector<float> lse(expected.lse.size());
    Options options = problem.options(Precision::high, kernel().name);
    options.lse = lse.data();
    forward(kernel().device, view(problem.q_view(), q), view(problem.k_view(), k),
            view(problem.v_view(), v), OutputTensor(out.data(), type, problem.out_shape(), strides),
            options);
    expect_same_bits(lse, expected.lse, "lse");
    const HostRows rows = cuda::staging::rows_of(out.data(), problem.out_shape(), strides, bytes);
    std::vector<std::byte> packed(static_cast<std::size_t>(rows.bytes()));
    gather(rows, 0, rows.bytes(), packed.data());
    std::vector<std::byte> wanted(packed.size());
    for (std::size_t i = 0; i < expected.out.size(); ++i) {
      const std::uint16_t bits = bytes == 4 ? 0 : nearest_short(expected.out[i], type);
      if (bytes == 4) std::memcpy(&wanted[4 * i], &expected.out[i], 4);
      if (bytes == 2) std::memcpy(&wanted[2 * i], &bits, 2);
    }
    EXPECT_TRUE(packed == wanted) << "type " << static_cast<int>(type) << "\n" << reproduce();
    std::vector<std::byte> gaps(packed.size(), std::byte{0x5A});
    scatter(rows, 0, rows.bytes(), gaps.data());
    EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](std::byte x) {
      return x == std::byte{0x5A};
    })) << "a gap between the rows of out was written";
  }
}

TEST_P(CudaStaging, PageLockedMemoryIsCopiedDirectly) {
  for (const HostProblem& problem : problems()) {
    SCOPED_TRACE(problem.dimensions.to_string());
    const Result expected = run_guarded(kernel(), problem);
    const Pinned<std::int8_t> q(problem.q), k(problem.k), v(problem.v);
    const Result nothing = empty_result(problem);
    const Pinned<float> out(nothing.out), lse(nothing.lse);
    Int8Tensor q_view = problem.q_view(), k_view = problem.k_view(), v_view = problem.v_view();
    q_view.data = q.data();
    k_view.data = k.data();
    v_view.data = v.data();
    Options options = problem.options(Precision::high, kernel().name);
    options.lse = lse.data();
    forward(kernel().device, q_view, k_view, v_view, OutputTensor(out.data(), problem.out_shape()),
            options);
    expect_same_bits({out.values(), lse.values()}, expected);
    if (HasFailure()) return;
  }
}

TEST_P(CudaStaging, WorkOnTheStreamComesFirst) {
  const HostProblem problem = problems()[0];
  const Result expected = run_guarded(kernel(), problem);
  const Stream stream;
  const Buffer<std::int8_t> fresh(kernel().device, problem.q.data(), problem.q.size());
  const Pinned<std::int8_t> q(std::vector<std::int8_t>(problem.q.size(), 0));
  // A copy of 1 GB delays what follows it on the stream.
  Buffer<std::byte> slow(kernel().device, std::size_t{1} << 30);
  expect_cuda(cudaMemsetAsync(slow.data(), 1, slow.size(), stream.get()), "memset");
  expect_cuda(
      cudaMemcpyAsync(q.data(), fresh.data(), q.size(), cudaMemcpyDeviceToHost, stream.get()), "q");
  Result got = empty_result(problem);
  Int8Tensor q_view = problem.q_view();
  q_view.data = q.data();
  Options options = problem.options(Precision::high, kernel().name);
  options.lse = got.lse.data();
  forward(stream.device(), q_view, problem.k_view(), problem.v_view(),
          OutputTensor(got.out.data(), problem.out_shape()), options);
  expect_same_bits(got, expected);
}

TEST_P(CudaStaging, ThreadsAtOnce) {
  const std::vector<HostProblem> all = problems();
  std::vector<Result> expected;
  expected.reserve(all.size());
  for (const HostProblem& problem : all) expected.push_back(run_guarded(kernel(), problem));
  std::vector<std::thread> threads;
  std::vector<Result> got(all.size());
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      threads.emplace_back([&, i] { got[i] = run_staged(all[i], kernel().device); });
    }
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    for (std::size_t i = 0; i < all.size(); ++i) expect_same_bits(got[i], expected[i]);
  }
}

// More keys than there is memory on any device, in few bytes: they overlap.
TEST_P(CudaStaging, ErrorsLeaveItUsable) {
  const HostProblem problem = problems()[0];
  const Result expected = run_guarded(kernel(), problem);
  const std::int64_t keys = std::int64_t{1} << 24;
  const std::vector<std::int8_t> memory(static_cast<std::size_t>(keys + 2 * 65536 + 256), 1);
  const std::vector<float> scales(65536, 0.01F);
  const Shape shape{2, keys, 65536, 256};
  const Int8Tensor k(memory.data(), shape, {1, 1, 1}, per_head(scales.data()));
  std::vector<float> out(2 * 65536 * 256, -7.0F);
  const Int8Tensor q(memory.data(), {2, 1, 65536, 256}, {1, 1, 1}, per_head(scales.data()));
  for (int i = 0; i < 3; ++i) {
    try {
      forward(kernel().device, q, k, k, OutputTensor(out.data(), q.shape),
              problem.options(Precision::high, kernel().name));
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    }
    expect_same_bits(run_staged(problem, kernel().device), expected);
  }
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float x) { return x == -7.0F; }));
}

TEST_P(CudaStaging, DeviceMemoryAndPendingErrorsStayAsTheyWere) {
  const HostProblem problem = problems()[1];
  run_staged(problem, kernel().device);
  std::size_t before = 0, after = 0, total = 0;
  expect_cuda(cudaMemGetInfo(&before, &total), "memory");
  cudaSetDevice(999);  // an error of the caller's that nobody has looked at
  const cudaError_t pending = cudaPeekAtLastError();
  for (int i = 0; i < 10; ++i) run_staged(problem, kernel().device);
  EXPECT_EQ(cudaPeekAtLastError(), pending) << "the caller's error was swallowed or replaced";
  cudaGetLastError();
  expect_cuda(cudaMemGetInfo(&after, &total), "memory");
  EXPECT_GE(after + (4U << 20), before) << "device memory was not given back";
}

}  // namespace
}  // namespace qattn::test
