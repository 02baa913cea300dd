// Empty extents: success without a write, or zeros and -infinity where there are queries but no
// keys.
#include <cmath>
#include <string>
#include <vector>

#include "support/kernel_param.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"

namespace qattn::test {
namespace {

using verify::Dimensions;
using verify::HostProblem;
using verify::Result;

class Empty : public KernelTest {
 protected:
  // A call whose pointers are all null; an empty name lets selection pick.
  void forward_null(const Dimensions& d, const Mask& mask, const std::string& name) {
    const Int8Tensor q(static_cast<const std::int8_t*>(nullptr),
                       {d.batch, d.seq_q, d.heads_q, d.head_dim}, per_head(nullptr));
    const Int8Tensor kv(static_cast<const std::int8_t*>(nullptr),
                        {d.batch, d.seq_k, d.heads_kv, d.head_dim}, per_head(nullptr));
    Options options;
    options.mask = mask;
    options.kernel = name;
    forward(kernel().device, q, kv, kv,
            OutputTensor(nullptr, {d.batch, d.seq_q, d.heads_q, d.head_dim}), options);
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Empty, testing::ValuesIn(all_kernels()), test_name);

TEST_P(Empty, NothingToWriteSucceedsWithNullPointers) {
  for (const Dimensions& d : {Dimensions{0, 64, 64, 4, 2, 64},
                              {2, 0, 4096, 4, 2, 64},
                              {2, 0, 0, 4, 2, 64},
                              {2, 64, 64, 0, 2, 64},
                              {2, 64, 64, 0, 0, 64},
                              {0, 0, 0, 0, 0, 64},
                              {0, 64, 0, 4, 4, 256},
                              {0, 1, 1, 1, 1, 1}}) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      EXPECT_NO_THROW(forward_null(d, mask, kernel().name)) << d.to_string();
      EXPECT_NO_THROW(forward_null(d, mask, {})) << d.to_string();
    }
  }
}

TEST_P(Empty, NothingToWriteWritesNothing) {
  BorderedFloats out(kernel().device, 64);
  BorderedFloats lse(kernel().device, 64);
  const std::vector<std::int8_t> bytes(4096, 1);
  const std::vector<float> ones(16, 1.0F);
  const Buffer<std::int8_t> data(kernel().device, bytes.data(), bytes.size());
  const Buffer<float> scale(kernel().device, ones.data(), ones.size());
  for (const Dimensions& d :
       {Dimensions{0, 8, 8, 4, 2, 16}, {2, 0, 8, 4, 2, 16}, {2, 8, 8, 0, 2, 16}}) {
    const Int8Tensor q(data.data(), {d.batch, d.seq_q, d.heads_q, d.head_dim},
                       per_head(scale.data()));
    const Int8Tensor kv(data.data(), {d.batch, d.seq_k, d.heads_kv, d.head_dim},
                        per_head(scale.data()));
    Options options;
    options.kernel = kernel().name;
    options.lse = lse.data();
    forward(kernel().device, q, kv, kv,
            OutputTensor(out.data(), {d.batch, d.seq_q, d.heads_q, d.head_dim}), options);
  }
  for (const float x : out.take("out")) ASSERT_TRUE(is_unwritten(x));
  for (const float x : lse.take("lse")) ASSERT_TRUE(is_unwritten(x));
}

TEST_P(Empty, NoKeysGiveZerosAndMinusInfinity) {
  for (const Dimensions& d :
       {Dimensions{2, 3, 0, 4, 2, 64}, {1, 1, 0, 1, 1, 1}, {1, 300, 0, 2, 1, 256}}) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      for (const Precision precision : {Precision::high, Precision::fast}) {
        const HostProblem problem = verify::random_problem(d, mask, case_seed(0));
        RunSettings settings;
        settings.precision = precision;
        const Result result = run_guarded(kernel(), problem, settings);
        for (const float x : result.out) ASSERT_EQ(x, 0.0F) << describe(problem, precision);
        for (const float x : result.lse) ASSERT_EQ(x, -INFINITY) << describe(problem, precision);
      }
    }
  }
}

TEST_P(Empty, NoKeysNeedNoKeyPointers) {
  BorderedFloats out(kernel().device, 2 * 3 * 16);
  const std::vector<std::int8_t> bytes(2 * 3 * 16, 1);
  const std::vector<float> ones(2, 1.0F);
  const Buffer<std::int8_t> data(kernel().device, bytes.data(), bytes.size());
  const Buffer<float> scale(kernel().device, ones.data(), ones.size());
  Options options;
  options.kernel = kernel().name;
  const Int8Tensor kv(static_cast<const std::int8_t*>(nullptr), {1, 0, 1, 16}, per_head(nullptr));
  forward(kernel().device, Int8Tensor(data.data(), {1, 3, 2, 16}, per_head(scale.data())), kv, kv,
          OutputTensor(out.data(), {1, 3, 2, 16}), options);
  for (const float x : out.take("out")) ASSERT_EQ(x, 0.0F);
}

TEST_P(Empty, WorkspaceOfNothingIsNone) {
  const Int8Tensor q(static_cast<const std::int8_t*>(nullptr), {2, 0, 4, 64}, per_head(nullptr));
  const Int8Tensor kv(static_cast<const std::int8_t*>(nullptr), {2, 4096, 2, 64},
                      per_head(nullptr));
  Options options;
  options.kernel = kernel().name;
  EXPECT_EQ(
      workspace_bytes(kernel().device, q, kv, kv, OutputTensor(nullptr, {2, 0, 4, 64}), options),
      0U);
}

}  // namespace
}  // namespace qattn::test
