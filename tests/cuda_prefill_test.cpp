// The prefill kernels of CUDA, which take calls of 1024 rows and more a kv head: what smaller
// problems of the suite do not reach, since those are decoded or tiny.
#include "support/kernel_param.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"

namespace qattn::test {
namespace {

using verify::HostProblem;
using verify::Result;

class CudaPrefill : public KernelTest {
 protected:
  void check(const HostProblem& problem) { expect_oracle(kernel(), problem); }
};
INSTANTIATE_TEST_SUITE_P(Kernels, CudaPrefill, testing::ValuesIn(cuda_kernels()), test_name);

TEST_P(CudaPrefill, EveryKindOfHeadDim) {
  std::uint64_t index = 0;
  for (const std::int64_t head_dim : {8, 32, 33, 64, 72, 80, 96, 100, 128, 160, 192, 200, 256}) {
    check(
        verify::random_problem({1, 530, 300, 4, 2, head_dim}, Mask::causal(), case_seed(index++)));
    check(verify::random_problem({1, 1030, 130, 2, 2, head_dim}, Mask::full(), case_seed(index++)));
    if (HasFatalFailure()) return;
  }
}

// Groups of keys of which rows see all, none or a part, at both ends of a block of rows.
TEST_P(CudaPrefill, LengthsAroundBlocksOfRows) {
  std::uint64_t index = 100;
  for (const std::int64_t seq_q : {1024, 1025, 1087, 1151, 1152, 1153, 1216}) {
    for (const std::int64_t head_dim : {32, 256}) {
      const std::int64_t seq_k = seq_q - 3 * static_cast<std::int64_t>(index % 5);
      check(verify::random_problem({1, seq_q, seq_k, 1, 1, head_dim}, Mask::causal(),
                                   case_seed(index++)));
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace qattn::test
