// Few rows against many keys, on every kernel: lengths, groups and row counts around the places
// where a kernel may cut keys or rows.
#include <cmath>
#include <limits>
#include <vector>

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

class Splits : public KernelTest {
 protected:
  Result run(const HostProblem& problem, Precision precision) {
    RunSettings settings;
    settings.precision = precision;
    return run_guarded(kernel(), problem, settings);
  }
  // Runs at both precisions against the plain loops.
  void check(const HostProblem& problem) {
    const Result expected = oracle(problem);
    for (const Precision precision : kPrecisions) {
      SCOPED_TRACE(describe(problem, precision));
      expect_close(kernel(), problem, run(problem, precision), expected, precision);
    }
  }
  void check(const Dimensions& dimensions, const Mask& mask, std::uint64_t seed) {
    HostProblem problem = verify::random_problem(dimensions, mask, case_seed(seed), 2.0);
    problem.q_scale.back() *= -1;
    check(problem);
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Splits, testing::ValuesIn(all_kernels()), test_name);

TEST_P(Splits, LengthsAroundMultiplesOf512) {
  std::uint64_t seed = 0;
  for (const std::int64_t seq_k :
       {511, 512, 513, 639, 640, 641, 1023, 1024, 1025, 2048, 2049, 5000}) {
    for (const std::int64_t seq_q : {1, 3}) {
      check({1, seq_q, seq_k, 4, 2, 64}, Mask::causal(), seed++);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Splits, GroupsAndQueries) {
  std::uint64_t seed = 100;
  for (const std::int64_t group : {1, 2, 4, 7, 8, 16}) {
    for (std::int64_t seq_q = 1; seq_q <= 5; ++seq_q) {
      check({1, seq_q, 1300, 2 * group, 2, 32}, Mask::causal(), seed++);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Splits, NumbersOfRows) {
  std::uint64_t seed = 200;
  for (const std::int64_t seq_q : {7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65}) {
    for (const std::int64_t seq_k : {200, 1100}) {
      check({1, seq_q, seq_k, 1, 1, 128}, Mask::causal(), seed++);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Splits, HeadDims) {
  std::uint64_t seed = 300;
  for (const std::int64_t head_dim :
       {15, 16, 17, 32, 33, 48, 64, 80, 96, 100, 128, 160, 192, 200, 255, 256}) {
    for (const std::int64_t group : {1, 4, 12}) {
      const Mask mask = group == 4 ? Mask::full() : Mask::causal();
      check({2, 2, 1111, group, 1, head_dim}, mask, seed++);
      if (HasFailure()) return;
    }
  }
}

// A mean over so many keys nearly vanishes in a single column: no relative bound holds.
TEST_P(Splits, VeryFewColumns) {
  std::uint64_t seed = 350;
  for (const std::int64_t head_dim : {1, 2, 3, 7}) {
    const HostProblem problem =
        verify::random_problem({2, 2, 1111, 4, 1, head_dim}, Mask::causal(), case_seed(seed++));
    for (const Precision precision : kPrecisions) {
      expect_within_proof(kernel(), problem, run(problem, precision), precision);
    }
  }
}

// The last keys are seen by the last queries alone.
TEST_P(Splits, QueriesThatDoNotSeeTheLastKeys) {
  std::uint64_t seed = 400;
  for (const std::int64_t seq_k : {1025, 1026, 1030, 2049, 2051}) {
    for (const std::int64_t seq_q : {2, 5, 16, 40}) {
      check({1, seq_q, seq_k, 1, 1, 64}, Mask::causal(), seed++);
    }
    check({2, 5, seq_k, 8, 1, 128}, Mask::causal(), seed++);
  }
}

TEST_P(Splits, MoreQueriesThanKeys) {
  std::uint64_t seed = 500;
  for (const std::int64_t seq_q : {2, 9, 16}) {
    for (const std::int64_t seq_k : {0, 1, 5}) {
      check({2, seq_q, seq_k, 2, 2, 64}, Mask::causal(), seed++);
    }
  }
}

TEST_P(Splits, ExtremeValuesAndFactors) {
  for (const float scale : {0.0F, 1e-30F, 1e-3F, 1e30F, -1e-3F}) {
    HostProblem problem = blank_problem({1, 2, 2100, 2, 1, 128}, Mask::causal());
    problem.softmax_scale = std::fabs(scale);
    if (scale < 0) problem.k_scale[0] = -1.0F;
    for (std::size_t i = 0; i < problem.k.size(); ++i) {
      // Every key is -128 or 127 throughout, one of a kind in every few hundred.
      problem.k[i] = i / 128 % 300 == 7 ? std::int8_t{-128} : std::int8_t{127};
      problem.v[i] = static_cast<std::int8_t>(i / 128 % 256 - 128);
    }
    std::fill(problem.q.begin(), problem.q.end(), std::int8_t{-128});
    check(problem);
  }
}

TEST_P(Splits, ABadScaleSpoilsItsOwnHead) {
  HostProblem problem =
      verify::random_problem({2, 2, 1500, 4, 2, 64}, Mask::causal(), case_seed(0));
  const Result good = run(problem, Precision::high);
  problem.q_scale[1] = std::numeric_limits<float>::quiet_NaN();
  const Result bad = run(problem, Precision::high);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t i = 0; i < 2; ++i) {
      for (std::int64_t h = 0; h < 4; ++h) {
        const float* row = out_row(problem, bad, b, i, h);
        if (h == 1) {
          EXPECT_TRUE(std::isnan(row[0]) && std::isnan(row[63]));
          EXPECT_TRUE(std::isnan(lse_at(problem, bad, b, h, i)));
        } else {
          const float* expected = out_row(problem, good, b, i, h);
          expect_same_bits({row, row + 64}, {expected, expected + 64}, "out");
        }
      }
    }
  }
}

// Not even the last bit of a row depends on what else there is to do.
TEST_P(Splits, ABatchEntryAloneHasTheSameBits) {
  std::uint64_t seed = 600;
  for (const Dimensions& d : {Dimensions{5, 1, 1500, 8, 2, 128},
                              {5, 1, 2100, 4, 4, 64},
                              {5, 3, 1025, 7, 1, 96},
                              {5, 2, 700, 6, 2, 256},
                              {5, 40, 1100, 1, 1, 32}}) {
    const HostProblem problem = verify::random_problem(d, Mask::causal(), case_seed(seed++));
    for (const Precision precision : kPrecisions) {
      SCOPED_TRACE(describe(problem, precision));
      const Result all = run(problem, precision);
      for (std::int64_t b = 0; b < d.batch; ++b) {
        const Result alone = run(batch_entry(problem, b), precision);
        const auto out = static_cast<std::ptrdiff_t>(alone.out.size());
        const auto lse = static_cast<std::ptrdiff_t>(alone.lse.size());
        expect_same_bits(alone.out, {all.out.begin() + b * out, all.out.begin() + (b + 1) * out},
                         "out");
        expect_same_bits(alone.lse, {all.lse.begin() + b * lse, all.lse.begin() + (b + 1) * lse},
                         "lse");
      }
    }
  }
}

TEST_P(Splits, ResultWithoutLseHasTheSameBits) {
  const HostProblem problem =
      verify::random_problem({2, 2, 1500, 4, 2, 64}, Mask::causal(), case_seed(0));
  RunSettings settings;
  settings.lse = false;
  expect_same_bits(run_guarded(kernel(), problem, settings).out, run(problem, Precision::high).out,
                   "out");
}

}  // namespace
}  // namespace qattn::test
