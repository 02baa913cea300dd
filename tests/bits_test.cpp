// Bits: every CPU tier gives those of cpu/scalar, and no result depends on threads, batch, the
// number of queries, the executor or the run.
#include <algorithm>
#include <thread>
#include <vector>

#include "support/kernel_param.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"

namespace qattn::test {
namespace {

using verify::Dimensions;
using verify::HostProblem;
using verify::Result;

constexpr Precision kPrecisions[] = {Precision::high, Precision::fast};

RunSettings settings_of(Precision precision, int threads = 0) {
  RunSettings settings;
  settings.precision = precision;
  settings.threads = threads;
  return settings;
}

// CPU tiers against cpu/scalar.
class TierBits : public KernelTest {
 protected:
  void check(const HostProblem& problem) {
    for (const Precision precision : kPrecisions) {
      SCOPED_TRACE(describe(problem, precision));
      const Result expected =
          run_guarded(kernel_named("cpu/scalar"), problem, settings_of(precision));
      expect_same_bits(run_guarded(kernel(), problem, settings_of(precision)), expected);
    }
  }
};
std::vector<KernelCase> tiers_beyond_scalar() {
  std::vector<KernelCase> tiers = cpu_tiers();
  std::erase_if(tiers, [](const KernelCase& kernel) { return kernel.name == "cpu/scalar"; });
  return tiers;
}
INSTANTIATE_TEST_SUITE_P(Kernels, TierBits, testing::ValuesIn(tiers_beyond_scalar()), test_name);
// A processor without a tier beyond scalar has nothing to compare.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TierBits);

TEST_P(TierBits, EveryKindOfHeadDim) {
  std::uint64_t index = 0;
  for (const std::int64_t head_dim : {1,  2,  3,  7,  8,  15,  16,  17,  31,  32,  33,  48,  63,
                                      64, 65, 80, 96, 97, 100, 112, 127, 128, 129, 192, 255, 256}) {
    check(verify::random_problem({1, 18, 139, 2, 1, head_dim}, Mask::causal(), case_seed(index++)));
  }
}

TEST_P(TierBits, EveryKindOfLength) {
  constexpr std::int64_t kLengths[][2] = {{1, 1},    {1, 2},    {3, 3},     {7, 3},    {17, 127},
                                          {64, 128}, {65, 129}, {130, 257}, {300, 44}, {1, 2047},
                                          {2, 2048}, {3, 2049}, {1, 9001},  {5, 4097}, {33, 33}};
  std::uint64_t index = 0;
  for (const auto& [seq_q, seq_k] : kLengths) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      check(verify::random_problem({2, seq_q, seq_k, 6, 2, 64}, mask, case_seed(index++), 3.0));
    }
  }
}

TEST_P(TierBits, MoreHeadsInAGroupThanRowsInATask) {
  check(verify::random_problem({1, 3, 150, 300, 1, 32}, Mask::causal(), case_seed(0)));
}

TEST_P(TierBits, EveryKindOfScore) {
  std::uint64_t index = 0;
  for (const double score_sd : {1e-6, 0.1, 1.0, 5.0, 20.0, 1e3, 1e30}) {
    HostProblem problem =
        verify::random_problem({1, 9, 700, 4, 2, 48}, Mask::causal(), case_seed(index++), score_sd);
    check(problem);
    problem.q_scale[1] *= -1;
    problem.k_scale[1] = 0;
    problem.v_scale[0] *= -1e-30F;
    check(problem);
  }
}

TEST_P(TierBits, ExtremesOfTheIntegers) {
  HostProblem problem =
      verify::random_problem({1, 5, 400, 2, 1, 256}, Mask::full(), case_seed(0), 2.0);
  for (std::vector<std::int8_t>* tensor : {&problem.q, &problem.k, &problem.v}) {
    for (std::int8_t& x : *tensor) x = static_cast<std::int8_t>(x < 0 ? -128 : 127);
  }
  check(problem);
}

// One group of keys: blocks of rows of every size, of which none, few, most or all have 16-bit
// probabilities at `fast`.
TEST_P(TierBits, EveryKindOfShortProblem) {
  std::uint64_t index = 0;
  for (const std::int64_t seq : {2, 4, 5, 6, 8, 9, 16, 17, 24, 25, 41, 72, 113}) {
    for (const std::int64_t head_dim : {20, 32, 48, 64}) {
      for (const double score_sd : {0.5, 1.0, 2.0}) {
        SCOPED_TRACE(score_sd);
        const std::int64_t group = index % 4 == 0 ? 3 : 1;
        const std::int64_t seq_k = index % 3 == 0 ? 128 : seq;
        check(verify::random_problem({1, seq, seq_k, 2 * group, 2, head_dim},
                                     index % 5 == 0 ? Mask::full() : Mask::causal(),
                                     case_seed(index), score_sd));
        ++index;
      }
    }
  }
}

TEST_P(TierBits, ExtremesOfTheIntegersInAShortProblem) {
  HostProblem problem =
      verify::random_problem({2, 37, 100, 4, 2, 64}, Mask::causal(), case_seed(0), 2.0);
  for (std::vector<std::int8_t>* tensor : {&problem.q, &problem.k, &problem.v}) {
    for (std::int8_t& x : *tensor) x = static_cast<std::int8_t>(x < 0 ? -128 : 127);
  }
  check(problem);
  for (std::int8_t& x : problem.q) x = -128;
  for (std::int8_t& x : problem.k) x = -128;
  check(problem);
}

// Exponents that are 0, tiny, whole numbers and halves (probabilities lie halfway between two
// integers then), and below float32's range.
TEST_P(TierBits, EveryKindOfExponentFactor) {
  constexpr float kLn2 = 0.6931471805599453F;  // the factor of the exponent is then 1
  HostProblem problem =
      verify::random_problem({1, 20, 300, 2, 1, 16}, Mask::causal(), case_seed(0), 1.0);
  for (float& scale : problem.q_scale) scale = 1;
  for (float& scale : problem.k_scale) scale = 1;
  HostProblem small = problem;  // scores within +-16
  for (std::int8_t& x : small.q) x = static_cast<std::int8_t>(x % 2);
  for (std::int8_t& x : small.k) x = static_cast<std::int8_t>(x % 2);
  for (const float factor : {0.0F, 1e-45F, 1e-38F, 1e-20F, kLn2 / 65536, kLn2 / 1024, kLn2 / 128,
                             kLn2 / 8, kLn2 / 2, kLn2, 2 * kLn2, 1.0F, 1e5F, 1e30F, 3e38F}) {
    for (HostProblem* scores : {&problem, &small}) {
      for (const float sign : {1.0F, -1.0F}) {
        SCOPED_TRACE(factor * sign);
        scores->softmax_scale = factor * sign;
        check(*scores);
      }
    }
  }
}

// What binds all kernels but the reference, whose matrix products may sum in another order.
class Bits : public KernelTest {};
std::vector<KernelCase> all_but_reference() {
  std::vector<KernelCase> kernels = all_kernels();
  std::erase_if(kernels, [](const KernelCase& kernel) { return kernel.is_reference(); });
  return kernels;
}
INSTANTIATE_TEST_SUITE_P(Kernels, Bits, testing::ValuesIn(all_but_reference()), test_name);

constexpr Dimensions kComposed[] = {
    {5, 1, 300, 4, 2, 64}, {5, 72, 72, 4, 4, 32}, {3, 1, 9000, 8, 2, 32}, {3, 130, 257, 2, 1, 80}};

TEST_P(Bits, BatchEntryEqualsItselfAlone) {
  std::uint64_t index = 0;
  for (const Dimensions& dimensions : kComposed) {
    const HostProblem problem =
        verify::random_problem(dimensions, Mask::causal(), case_seed(index++));
    for (const Precision precision : kPrecisions) {
      SCOPED_TRACE(describe(problem, precision));
      const Result whole = run_guarded(kernel(), problem, settings_of(precision));
      for (std::int64_t b = 0; b < dimensions.batch; ++b) {
        const HostProblem part = batch_entry(problem, b);
        const Result alone = run_guarded(kernel(), part, settings_of(precision));
        const auto out = whole.out.begin() + b * part.out_size();
        expect_same_bits(alone.out, {out, out + part.out_size()}, "out");
        const auto lse = whole.lse.begin() + b * part.lse_size();
        expect_same_bits(alone.lse, {lse, lse + part.lse_size()}, "lse");
      }
    }
  }
}

// Heads that share keys share warps and panels too.
TEST_P(Bits, ScaleOfAHeadLeavesTheOthersAlone) {
  const HostProblem problem =
      verify::random_problem({1, 40, 300, 4, 1, 64}, Mask::causal(), case_seed(0));
  const std::int64_t head_dim = problem.dimensions.head_dim;
  for (const Precision precision : kPrecisions) {
    const Result before = run_guarded(kernel(), problem, settings_of(precision));
    for (const float scale : {-problem.q_scale[3], 100.0F, 0.0F}) {
      HostProblem changed = problem;
      changed.q_scale[3] = scale;
      SCOPED_TRACE(describe(changed, precision));
      const Result after = run_guarded(kernel(), changed, settings_of(precision));
      for (std::int64_t i = 0; i < problem.dimensions.seq_q; ++i) {
        for (std::int64_t h = 0; h < 3; ++h) {
          const float* expected = out_row(problem, before, 0, i, h);
          const float* got = out_row(problem, after, 0, i, h);
          expect_same_bits({got, got + head_dim}, {expected, expected + head_dim}, "out");
          expect_same_bits({lse_at(problem, after, 0, h, i)}, {lse_at(problem, before, 0, h, i)},
                           "lse");
        }
      }
    }
  }
}

TEST_P(Bits, RunsRepeat) {
  const HostProblem problem =
      verify::random_problem({2, 50, 2100, 4, 2, 64}, Mask::causal(), case_seed(0));
  for (const Precision precision : kPrecisions) {
    const Result first = run_guarded(kernel(), problem, settings_of(precision));
    for (int i = 0; i < 5; ++i) {
      expect_same_bits(run_guarded(kernel(), problem, settings_of(precision)), first);
    }
  }
}

// What binds the CPU tiers.
INSTANTIATE_TEST_SUITE_P(Kernels, CpuTierTest, testing::ValuesIn(cpu_tiers()), test_name);

TEST_P(CpuTierTest, ThreadsDoNotChangeBits) {
  std::uint64_t index = 0;
  for (const Dimensions& dimensions : {Dimensions{2, 72, 72, 4, 4, 32},
                                       {1, 600, 600, 2, 1, 64},
                                       {1, 1, 20000, 2, 1, 64},
                                       {1, 40, 5000, 1, 1, 128}}) {
    const HostProblem problem =
        verify::random_problem(dimensions, Mask::causal(), case_seed(index++));
    for (const Precision precision : kPrecisions) {
      const Result expected = run_guarded(kernel(), problem, settings_of(precision, 1));
      for (const int threads : {2, 7, 0}) {
        SCOPED_TRACE(describe(problem, precision) + " threads " + std::to_string(threads));
        expect_same_bits(run_guarded(kernel(), problem, settings_of(precision, threads)), expected);
      }
    }
  }
}

TEST_P(CpuTierTest, PrefillRowsEqualDecodeSteps) {
  std::uint64_t index = 0;
  for (const Dimensions& dimensions :
       {Dimensions{2, 150, 150, 4, 2, 64}, {1, 70, 4200, 2, 1, 40}, {1, 300, 200, 3, 3, 32}}) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      const HostProblem problem = verify::random_problem(dimensions, mask, case_seed(index++));
      for (const Precision precision : kPrecisions) {
        const Result prefill = run_guarded(kernel(), problem, settings_of(precision));
        for (std::int64_t i = 0; i < dimensions.seq_q; i += 23) {
          SCOPED_TRACE(describe(problem, precision) + " row " + std::to_string(i));
          const HostProblem step = decode_step(problem, i);
          const Result decoded = run_guarded(kernel(), step, settings_of(precision));
          for (std::int64_t b = 0; b < dimensions.batch; ++b) {
            for (std::int64_t h = 0; h < dimensions.heads_q; ++h) {
              const float* row = out_row(problem, prefill, b, i, h);
              const float* alone = out_row(step, decoded, b, 0, h);
              expect_same_bits({alone, alone + dimensions.head_dim},
                               {row, row + dimensions.head_dim}, "out");
              expect_same_bits({lse_at(step, decoded, b, h, 0)},
                               {lse_at(problem, prefill, b, h, i)}, "lse");
            }
          }
        }
      }
    }
  }
}

using Task = void (*)(void* argument, std::int64_t index);

void run_in_reverse(void* /*context*/, std::int64_t tasks, Task task, void* argument) {
  for (std::int64_t i = tasks - 1; i >= 0; --i) task(argument, i);
}

// Three threads that take every third task each.
void run_on_threads(void* context, std::int64_t tasks, Task task, void* argument) {
  *static_cast<std::int64_t*>(context) += tasks;
  std::vector<std::thread> threads;
  for (std::int64_t first = 0; first < 3; ++first) {
    threads.emplace_back([=] {
      for (std::int64_t i = first; i < tasks; i += 3) task(argument, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(CpuTierTest, ExecutorEqualsOpenMp) {
  std::uint64_t index = 0;
  for (const Dimensions& dimensions :
       {Dimensions{2, 300, 300, 4, 2, 64}, {1, 1, 9000, 4, 1, 64}, {3, 600, 130, 2, 2, 32}}) {
    const HostProblem problem =
        verify::random_problem(dimensions, Mask::causal(), case_seed(index++));
    for (const Precision precision : kPrecisions) {
      SCOPED_TRACE(describe(problem, precision));
      RunSettings settings = settings_of(precision);
      const Result expected = run_guarded(kernel(), problem, settings);
      settings.executor = {run_in_reverse, nullptr};
      expect_same_bits(run_guarded(kernel(), problem, settings), expected);
      std::int64_t tasks = 0;
      settings.executor = {run_on_threads, &tasks};
      expect_same_bits(run_guarded(kernel(), problem, settings), expected);
      EXPECT_GT(tasks, 0) << "the executor was not used";
    }
  }
}

}  // namespace
}  // namespace qattn::test
