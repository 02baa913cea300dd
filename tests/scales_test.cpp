// Scales: one per head, of any finite value; a bad one spoils its own head alone.
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
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Scales : public KernelTest {
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
INSTANTIATE_TEST_SUITE_P(Kernels, Scales, testing::ValuesIn(all_kernels()), test_name);

HostProblem base_problem(Mask mask = Mask::causal()) {
  return verify::random_problem({2, 21, 150, 4, 2, 48}, mask, case_seed(0));
}

TEST_P(Scales, OnePerHeadAndNoneForAll) {
  for (const std::int64_t keys : {1, 2, 3, 5, 8, 9, 130}) {
    for (const std::int64_t seq_q : {1, 6}) {
      HostProblem problem =
          verify::random_problem({2, seq_q, keys, 8, 2, 32}, Mask::full(), case_seed(1));
      problem.softmax_scale = 1.0F;
      for (std::size_t h = 0; h < 8; ++h)
        problem.q_scale[h] = std::ldexp(1.0F, -20 + static_cast<int>(h));
      problem.k_scale = {0.5F, 4.0F};
      problem.v_scale = {0.25F, 8.0F};
      check(problem);
    }
  }
}

TEST_P(Scales, DefaultSoftmaxScaleIsOneOverSqrtHeadDim) {
  for (const std::int64_t head_dim : {1, 7, 64, 80, 256}) {
    HostProblem problem =
        verify::random_problem({1, 5, 60, 2, 1, head_dim}, Mask::causal(), case_seed(0));
    problem.softmax_scale.reset();
    const Result by_default = run(problem);
    expect_close(kernel(), problem, by_default, oracle(problem), Precision::high);
    problem.softmax_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
    expect_close(kernel(), problem, run(problem), by_default, Precision::high);
  }
}

TEST_P(Scales, ZeroSoftmaxScaleGivesTheMean) {
  HostProblem problem = base_problem();
  for (const float zero : {0.0F, -0.0F}) {
    problem.softmax_scale = zero;
    check(problem);
  }
}

TEST_P(Scales, ZeroScales) {
  HostProblem problem = base_problem();
  problem.q_scale[1] = 0;
  check(problem);
  problem = base_problem();
  problem.k_scale[0] = 0;
  check(problem);
  problem = base_problem();
  problem.v_scale[1] = 0;
  const Result result = run(problem);
  for (std::int64_t i = 0; i < 21; ++i) {
    for (int d = 0; d < 48; ++d) EXPECT_EQ(out_row(problem, result, 1, i, 2)[d], 0.0F);
  }
  check(problem);
}

TEST_P(Scales, NegativeScales) {
  for (int signs = 1; signs < 16; ++signs) {
    HostProblem problem = base_problem(signs % 2 == 0 ? Mask::causal() : Mask::full());
    if ((signs & 1) != 0) problem.q_scale[1] *= -1;
    if ((signs & 2) != 0) problem.k_scale[0] *= -1;
    if ((signs & 4) != 0) problem.v_scale[1] *= -1;
    if ((signs & 8) != 0) {
      problem.softmax_scale = static_cast<float>(-1 / std::sqrt(48.0));
    }
    check(problem);
  }
}

TEST_P(Scales, NegativeScalesBesideMaskedKeys) {
  // Masked keys must not come out on top when the sign of the scores turns.
  HostProblem problem =
      verify::random_problem({1, 150, 70, 2, 2, 32}, Mask::causal(), case_seed(0));
  problem.q_scale[0] *= -1;
  problem.k_scale[1] = 0;
  check(problem);
}

// Products that leave the range of float32 on the way though the factor lies inside.
TEST_P(Scales, FactorWithinRangeThroughExtremeParts) {
  struct Parts {
    float q, k, softmax;
  };
  // About 2e-5 each: 1 nat for random data of head_dim 48.
  for (const Parts& parts :
       {Parts{1e-30F, 2e-13F, 1e38F}, Parts{1e-25F, 2e-18F, 1e38F}, Parts{1e20F, 1e19F, 2e-44F},
        Parts{1e38F, 2e-10F, 1e-33F}, Parts{1e-40F, 2e5F, 1e30F}, Parts{-1e20F, 1e19F, -2e-44F}}) {
    HostProblem problem = base_problem();
    problem.softmax_scale = parts.softmax;
    problem.q_scale.assign(4, parts.q);
    problem.k_scale.assign(2, parts.k);
    check(problem);
  }
}

TEST_P(Scales, FactorBeyondFloat32IsClamped) {
  HostProblem problem = blank_problem({1, 1, 3, 2, 1, 1}, Mask::full());
  problem.softmax_scale = 1e30F;
  problem.q_scale = {1e30F, -1e30F};
  problem.k_scale = {1e30F};
  problem.q = {1, 1};
  problem.k = {0, 1, -1};
  problem.v = {10, 20, 30};
  for (const Precision precision : kPrecisions) {
    const Result result = run(problem, precision);
    EXPECT_FLOAT_EQ(result.out[0], 20.0F);
    EXPECT_FLOAT_EQ(result.out[1], 30.0F);
    EXPECT_FLOAT_EQ(result.lse[0], std::numeric_limits<float>::max());
    problem.q = {0, 0};  // 0 times the clamped factor is 0, not NaN
    for (const float x : run(problem, precision).out) EXPECT_NEAR(x, 20.0F, 1e-4);
    problem.q = {1, 1};
  }
}

TEST_P(Scales, FactorBelowFloat32IsAsGoodAsZero) {
  HostProblem problem = base_problem();
  problem.softmax_scale = 1e-30F;
  problem.q_scale.assign(4, 1e-30F);
  problem.k_scale.assign(2, 1e-30F);
  check(problem);
}

TEST_P(Scales, HugeAndTinyValueScales) {
  HostProblem problem = blank_problem({1, 2, 300, 1, 1, 8}, Mask::full());
  for (std::int64_t j = 0; j < 300; ++j) {
    k_row(&problem, 0, j, 0)[0] = static_cast<std::int8_t>(j % 3);
    fill(v_row(&problem, 0, j, 0), 8, 1);
  }
  fill(problem.q.data(), 16, 1);
  for (const float v_scale : {3e38F, -3e38F, 1.5e-38F, 1e-40F, 1e-45F}) {
    problem.v_scale = {v_scale};
    for (const Precision precision : kPrecisions) {
      // All values are equal: the result is the scale itself, to rounding or one denormal step.
      for (const float x : run(problem, precision).out) {
        EXPECT_NEAR(x, v_scale, std::abs(v_scale) * 1e-5 + 1.5e-45) << "v_scale " << v_scale;
      }
    }
  }
}

// Entries of the heads [begin, end) of a result.
std::vector<float> heads_of(const HostProblem& problem, const Result& result, std::int64_t begin,
                            std::int64_t end) {
  const Dimensions& d = problem.dimensions;
  std::vector<float> entries;
  for (std::int64_t b = 0; b < d.batch; ++b) {
    for (std::int64_t i = 0; i < d.seq_q; ++i) {
      for (std::int64_t h = begin; h < end; ++h) {
        const float* row = out_row(problem, result, b, i, h);
        entries.insert(entries.end(), row, row + d.head_dim);
        entries.push_back(lse_at(problem, result, b, h, i));
      }
    }
  }
  return entries;
}

TEST_P(Scales, BadQueryScaleSpoilsItsOwnHeadAlone) {
  const HostProblem good = base_problem();
  for (const Precision precision : kPrecisions) {
    const Result expected = run(good, precision);
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      HostProblem problem = good;
      problem.q_scale[1] = bad;
      const Result result = run(problem, precision);
      expect_same_bits(heads_of(problem, result, 0, 1), heads_of(good, expected, 0, 1), "head 0");
      expect_same_bits(heads_of(problem, result, 2, 4), heads_of(good, expected, 2, 4),
                       "head 2, 3");
      if (std::isnan(bad)) {
        for (const float x : heads_of(problem, result, 1, 2)) {
          ASSERT_TRUE(std::isnan(x)) << "a NaN scale must not give the finite number " << x;
        }
      }
    }
  }
}

TEST_P(Scales, BadKeyOrValueScaleSpoilsItsOwnHeadsAlone) {
  const HostProblem good = base_problem(Mask::full());
  for (const Precision precision : kPrecisions) {
    const Result expected = run(good, precision);
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      for (const bool of_key : {true, false}) {
        HostProblem problem = good;
        (of_key ? problem.k_scale : problem.v_scale)[1] = bad;
        const Result result = run(problem, precision);
        expect_same_bits(heads_of(problem, result, 0, 2), heads_of(good, expected, 0, 2),
                         "heads 0, 1");
        const float* row = out_row(problem, result, 1, 20, 3);
        for (int d = 0; d < 48; ++d) {
          ASSERT_FALSE(std::isfinite(row[d])) << (of_key ? "k" : "v") << " scale " << bad;
        }
      }
    }
  }
}

TEST_P(Scales, RowsWithoutKeysStayZeroUnderBadScales) {
  HostProblem problem = verify::random_problem({1, 9, 4, 2, 1, 16}, Mask::causal(), case_seed(0));
  problem.q_scale[0] = kNan;
  problem.q_scale[1] = kInfinity;
  problem.v_scale[0] = kNan;
  const Result result = run(problem);
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 5; ++i) {
      for (int d = 0; d < 16; ++d) EXPECT_EQ(out_row(problem, result, 0, i, h)[d], 0.0F);
      EXPECT_EQ(lse_at(problem, result, 0, h, i), -kInfinity);
    }
  }
}

}  // namespace
}  // namespace qattn::test
