// Integer arithmetic: exact over -128..127, at the largest head_dim, over the longest rows.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "support/kernel_param.hpp"
#include "support/oracle.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"
#include "verify/measure.hpp"

namespace qattn::test {
namespace {

using verify::HostProblem;
using verify::Result;

constexpr Precision kPrecisions[] = {Precision::high, Precision::fast};

class Integers : public KernelTest {
 protected:
  Result run(const HostProblem& problem, Precision precision = Precision::high) {
    RunSettings settings;
    settings.precision = precision;
    return run_guarded(kernel(), problem, settings);
  }

  void check(const HostProblem& problem) {
    const Result expected = oracle(problem);
    for (const Precision precision : kPrecisions) {
      expect_close(kernel(), problem, run(problem, precision), expected, precision);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Integers, testing::ValuesIn(all_kernels()), test_name);

// A single key: lse is the score itself, and float32 holds every dot product of int8 vectors of up
// to 256 elements exactly (at most 256 * 128 * 128 = 2^22).
TEST_P(Integers, DotProductsOfConstantVectors) {
  for (const int a : {-128, -127, -1, 1, 127}) {
    for (const int b : {-128, -127, -1, 1, 127}) {
      for (const std::int64_t head_dim : {1, 2, 31, 64, 255, 256}) {
        HostProblem problem = blank_problem({1, 1, 1, 1, 1, head_dim}, Mask::full());
        problem.softmax_scale = 1.0F / 4096;
        fill(q_row(&problem, 0, 0, 0), head_dim, a);
        fill(k_row(&problem, 0, 0, 0), head_dim, b);
        fill(v_row(&problem, 0, 0, 0), head_dim, a);
        const double score = static_cast<double>(a * b * head_dim) / 4096;
        const Result result = run(problem);
        ASSERT_NEAR(lse_at(problem, result, 0, 0, 0), score, 1e-6 * std::abs(score))
            << a << " * " << b << ", head_dim " << head_dim;
      }
    }
  }
}

// Two keys whose dot products with q are equal though their elements lie in another order: any
// saturation or overflow of partial sums tells them apart.
TEST_P(Integers, PartialSumsDoNotSaturate) {
  for (const std::int64_t head_dim : {32, 64, 128, 256}) {
    for (const int q_value : {-128, 127}) {
      HostProblem problem = blank_problem({1, 1, 2, 1, 1, head_dim}, Mask::full());
      fill(q_row(&problem, 0, 0, 0), head_dim, q_value);
      for (std::int64_t d = 0; d < head_dim; ++d) {
        k_row(&problem, 0, 0, 0)[d] = static_cast<std::int8_t>(d < head_dim / 2 ? 127 : -128);
        k_row(&problem, 0, 1, 0)[d] = static_cast<std::int8_t>(d % 2 == 0 ? 127 : -128);
      }
      fill(v_row(&problem, 0, 0, 0), head_dim, 100);
      const Result result = run(problem);
      ASSERT_NEAR(out_row(problem, result, 0, 0, 0)[0], 50.0, 1e-4)
          << "head_dim " << head_dim << ", q " << q_value;
    }
  }
}

// One unit more in one product of 256, all of one sign: the scores differ by 128 in 4 million.
TEST_P(Integers, OneUnitAtTheLargestSum) {
  for (const int sign : {-1, 1}) {
    HostProblem problem = blank_problem({1, 1, 2, 1, 1, 256}, Mask::full());
    problem.softmax_scale = 1.0F / 128;
    fill(q_row(&problem, 0, 0, 0), 256, -128);
    fill(k_row(&problem, 0, 0, 0), 256, sign < 0 ? -128 : 127);
    fill(k_row(&problem, 0, 1, 0), 256, sign < 0 ? -128 : 127);
    k_row(&problem, 0, 1, 0)[255] = static_cast<std::int8_t>(sign < 0 ? -127 : 126);
    fill(v_row(&problem, 0, 0, 0), 256, 100);
    const double odds = std::exp(sign < 0 ? -1.0 : 1.0);  // of key 1 against key 0
    for (const Precision precision : kPrecisions) {
      const Result result = run(problem, precision);
      EXPECT_NEAR(out_row(problem, result, 0, 0, 0)[7], 100 / (1 + odds),
                  100 * verify::error_bound(precision));
    }
  }
}

TEST_P(Integers, RandomFullRange) {
  std::mt19937_64 random(case_seed(0));
  for (const std::int64_t head_dim : {17, 64, 256}) {
    HostProblem problem = blank_problem({1, 20, 150, 2, 1, head_dim}, Mask::causal());
    // Scores with a standard deviation near 2.
    problem.softmax_scale =
        static_cast<float>(2.0 / (74.0 * 74.0 * std::sqrt(static_cast<double>(head_dim))));
    for (std::vector<std::int8_t>* tensor : {&problem.q, &problem.k, &problem.v}) {
      for (std::int8_t& x : *tensor) x = static_cast<std::int8_t>(random() >> 56);
    }
    check(problem);
  }
}

TEST_P(Integers, OnlyExtremeValues) {
  std::mt19937_64 random(case_seed(1));
  constexpr std::int8_t kExtremes[] = {-128, -127, 127, 126};
  for (const std::int64_t head_dim : {33, 128, 256}) {
    HostProblem problem = blank_problem({1, 9, 200, 1, 1, head_dim}, Mask::full());
    problem.softmax_scale =
        static_cast<float>(2.0 / (127.0 * 127.0 * std::sqrt(static_cast<double>(head_dim))));
    for (std::vector<std::int8_t>* tensor : {&problem.q, &problem.k, &problem.v}) {
      for (std::int8_t& x : *tensor) x = kExtremes[random() >> 62];
    }
    check(problem);
  }
}

TEST_P(Integers, OneKeyGivesItsValue) {
  for (const int value : {-128, -1, 1, 100, 127}) {
    for (const Precision precision : kPrecisions) {
      HostProblem problem = blank_problem({1, 3, 1, 2, 1, 48}, Mask::full());
      problem.q_scale = {0.5F, 0.25F};
      problem.k_scale = {4.0F};
      problem.v_scale = {0.375F};
      fill(problem.q.data(), static_cast<std::int64_t>(problem.q.size()), 77);
      fill(problem.k.data(), static_cast<std::int64_t>(problem.k.size()), -5);
      fill(problem.v.data(), static_cast<std::int64_t>(problem.v.size()), value);
      const Result result = run(problem, precision);
      for (const float x : result.out) ASSERT_FLOAT_EQ(x, 0.375F * static_cast<float>(value));
    }
  }
}

TEST_P(Integers, EqualScoresGiveTheMean) {
  for (const std::int64_t keys : {2, 3, 5, 8, 9}) {
    for (const Precision precision : kPrecisions) {
      HostProblem problem = blank_problem({1, 1, keys, 1, 1, 20}, Mask::full());
      problem.q_scale = {0.5F};
      problem.k_scale = {4.0F};
      problem.v_scale = {0.25F};
      double mean = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        fill(v_row(&problem, 0, j, 0), 20, static_cast<int>(127 - 40 * j % 255));
        mean += 0.25 * static_cast<double>(127 - 40 * j % 255) / static_cast<double>(keys);
      }
      const Result result = run(problem, precision);
      for (const float x : result.out) ASSERT_NEAR(x, mean, 1e-5) << keys << " keys";
    }
  }
}

// A whole-row int32 sum of u8 x s8 products overflows from 65,794 keys on.
TEST_P(Integers, LongRowsOfEqualScores) {
  for (const std::int64_t keys : {70000, 140000}) {
    for (const int value : {-128, 127}) {
      HostProblem problem = blank_problem({1, 1, keys, 1, 1, 2}, Mask::causal());
      problem.v_scale = {0.5F};
      fill(problem.v.data(), static_cast<std::int64_t>(problem.v.size()), value);
      for (const Precision precision : kPrecisions) {
        const Result result = run(problem, precision);
        // float32 rounds once for every group of 128 keys that joins; CPU tiers join in two levels.
        const double joins = static_cast<double>(keys) / 128;
        const double rounding = kernel().on_cpu() ? 1e-4 : joins * 0x1p-24 * std::abs(0.5 * value);
        EXPECT_NEAR(result.out[0], 0.5 * value, rounding) << keys << " keys";
        EXPECT_NEAR(result.lse[0], std::log(static_cast<double>(keys)), 1e-4) << keys << " keys";
      }
    }
  }
}

// Offsets that the instructions need (+128 on one operand) must not show in lse.
TEST_P(Integers, LseOfTheOriginalData) {
  HostProblem problem = blank_problem({1, 2, 300, 1, 1, 64}, Mask::full());
  problem.softmax_scale = 1.0F / 65536;
  fill(problem.q.data(), static_cast<std::int64_t>(problem.q.size()), -37);
  fill(problem.k.data(), static_cast<std::int64_t>(problem.k.size()), 100);
  const double expected = -37.0 * 100 * 64 / 65536 + std::log(300.0);
  for (const Precision precision : kPrecisions) {
    const Result result = run(problem, precision);
    for (const float x : result.lse) EXPECT_NEAR(x, expected, 1e-5);
  }
}

}  // namespace
}  // namespace qattn::test
