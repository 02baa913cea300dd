// The softmax: any height of the scores, any order of the keys, no mass lost.
#include <algorithm>
#include <cmath>
#include <functional>
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

class Softmax : public KernelTest {
 protected:
  Result run(const HostProblem& problem, Precision precision) {
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

  // For problems that are harder than those of the accuracy suite.
  void check_proof(const HostProblem& problem) {
    for (const Precision precision : kPrecisions) {
      expect_within_proof(kernel(), problem, run(problem, precision), precision);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Softmax, testing::ValuesIn(all_kernels()), test_name);

// One query against keys of head_dim 16 whose scores are `scores` (rounded to 1/1024 nat; up to
// 127 * 127 * 16 / 1024 = 252 nats either way); v of key j is j % 251 - 125 and, in channel 1, 100.
HostProblem problem_with_scores(const std::vector<double>& scores) {
  const auto keys = static_cast<std::int64_t>(scores.size());
  HostProblem problem = blank_problem({1, 1, keys, 1, 1, 16}, Mask::full());
  problem.softmax_scale = 1.0F / 1024;
  std::int8_t* q = q_row(&problem, 0, 0, 0);
  fill(q, 15, 127);
  q[15] = 1;
  for (std::int64_t j = 0; j < keys; ++j) {
    const auto units = std::lround(scores[static_cast<std::size_t>(j)] * 1024);
    // 127 * (sum of 15 elements) + last element = units
    long left = std::lround(static_cast<double>(units) / 127);
    std::int8_t* k = k_row(&problem, 0, j, 0);
    k[15] = static_cast<std::int8_t>(units - 127 * left);
    for (int d = 0; d < 15; ++d) {
      const long part = std::clamp(left, -128L, 127L);
      k[d] = static_cast<std::int8_t>(part);
      left -= part;
    }
    EXPECT_EQ(left, 0) << "score out of reach";
    fill(v_row(&problem, 0, j, 0), 16, static_cast<int>(j % 251 - 125));
    v_row(&problem, 0, j, 0)[1] = 100;
  }
  return problem;
}

std::vector<double> scores_of(std::int64_t keys, const std::function<double(std::int64_t)>& score) {
  std::vector<double> scores;
  for (std::int64_t j = 0; j < keys; ++j) scores.push_back(score(j));
  return scores;
}

TEST_P(Softmax, ConstantShiftChangesNothing) {
  // Four channels lift every score of a row by the same amount, up to 65,000 units of 1 nat.
  HostProblem problem = blank_problem({1, 2, 333, 1, 1, 32}, Mask::full());
  for (std::int64_t i = 0; i < 2; ++i) {
    fill(q_row(&problem, 0, i, 0), 4, -128);
    q_row(&problem, 0, i, 0)[20] = static_cast<std::int8_t>(1 + i);
  }
  for (std::int64_t j = 0; j < 333; ++j) {
    k_row(&problem, 0, j, 0)[20] = static_cast<std::int8_t>(j * 7 % 9 - 4);
    for (std::int64_t d = 0; d < 32; ++d) {
      v_row(&problem, 0, j, 0)[d] = static_cast<std::int8_t>(j * (d + 3) % 256 - 128);
    }
  }
  for (const Precision precision : kPrecisions) {
    const Result unshifted = run(problem, precision);
    expect_close(kernel(), problem, unshifted, oracle(problem), precision);
    for (const int lift : {-128, -1, 1, 127}) {
      HostProblem shifted = problem;
      for (std::int64_t j = 0; j < 333; ++j) fill(k_row(&shifted, 0, j, 0), 4, lift);
      const Result result = run(shifted, precision);
      expect_close(kernel(), shifted, result, oracle(shifted), precision);
      if (kernel().is_cpu_tier()) expect_same_bits(result.out, unshifted.out, "shifted out");
    }
  }
}

TEST_P(Softmax, AllScoresFarBelowZero) {
  for (const float scale : {1.0F, 10.0F, 1e4F, 1e30F}) {
    HostProblem problem = blank_problem({1, 3, 200, 1, 1, 64}, Mask::causal());
    problem.softmax_scale = scale;
    fill(problem.q.data(), 3 * 64, 127);
    fill(problem.k.data(), 200 * 64, -120);  // -1e6 * scale nats
    double mean = 0;
    for (std::int64_t j = 0; j < 200; ++j) {
      fill(v_row(&problem, 0, j, 0), 64, static_cast<int>(j % 100));
      mean += static_cast<double>(j % 100) / 200;
    }
    for (const Precision precision : kPrecisions) {
      const Result result = run(problem, precision);
      EXPECT_NEAR(out_row(problem, result, 0, 2, 0)[5], mean, 1e-4) << "scale " << scale;
      const double score = -127.0 * 120 * 64 * static_cast<double>(scale);
      EXPECT_NEAR(lse_at(problem, result, 0, 0, 2), score + std::log(200.0), 1e-6 * -score);
    }
  }
}

TEST_P(Softmax, EmptyRowsBesideRowsOfNegativeScores) {
  HostProblem problem = blank_problem({1, 260, 130, 2, 1, 64}, Mask::causal());
  problem.softmax_scale = 1.0F / 4096;
  fill(problem.q.data(), static_cast<std::int64_t>(problem.q.size()), 127);
  for (std::int64_t j = 0; j < 130; ++j) {
    fill(k_row(&problem, 0, j, 0), 64, static_cast<int>(-100 + j % 3));  // near -200 nats
    fill(v_row(&problem, 0, j, 0), 64, static_cast<int>(j - 60));
  }
  check(problem);
}

TEST_P(Softmax, OrderOfTheKeysDoesNotMatter) {
  constexpr std::int64_t kKeys = 2304;  // two split chunks, 18 groups
  const auto first = [](std::int64_t j) { return j < 128 ? 80.0 : -80.0; };
  const auto last = [](std::int64_t j) { return j >= kKeys - 128 ? 80.0 : -80.0; };
  const auto alternating = [](std::int64_t j) { return j / 128 % 2 == 0 ? 80.0 : -80.0; };
  const auto rising = [](std::int64_t j) { return -80.0 + static_cast<double>(j) / 16; };
  const auto falling = [](std::int64_t j) { return 80.0 - static_cast<double>(j) / 16; };
  const auto pairwise = [](std::int64_t j) { return j % 2 == 0 ? 80.0 : -80.0; };
  check(problem_with_scores(scores_of(kKeys, first)));
  check(problem_with_scores(scores_of(kKeys, last)));
  check(problem_with_scores(scores_of(kKeys, alternating)));
  check(problem_with_scores(scores_of(kKeys, rising)));
  check(problem_with_scores(scores_of(kKeys, falling)));
  check(problem_with_scores(scores_of(kKeys, pairwise)));
}

TEST_P(Softmax, SlowlyRisingMaximum) {
  for (const std::int64_t step : {16, 32, 64, 128}) {
    for (const double rise : {0.1, 0.5, 2.0}) {
      const auto score = [&](std::int64_t j) {
        const std::int64_t tile = j / step;
        return rise * static_cast<double>(tile) - 60;
      };
      HostProblem problem = problem_with_scores(scores_of(64 * step, score));
      for (std::int64_t j = 63 * step; j < 64 * step; ++j) {
        fill(v_row(&problem, 0, j, 0), 16, -100);  // the last tile against all others
      }
      check_proof(problem);
    }
  }
}

// Many small weights beside a large one must keep their mass, in the numerator too.
TEST_P(Softmax, DiffuseMassBesideASink) {
  for (const double height : {3.0, 6.2, 6.3, 7.0, 9.0, 11.0, 11.78, 12.0, 14.0}) {
    for (const std::int64_t keys : {72, 512, 8192}) {
      for (const std::int64_t sink : {std::int64_t{0}, std::int64_t{37}, keys - 1}) {
        HostProblem problem = problem_with_scores(
            scores_of(keys, [&](std::int64_t j) { return j == sink ? height : 0.0; }));
        for (std::int64_t j = 0; j < keys; ++j) fill(v_row(&problem, 0, j, 0), 16, 100);
        for (const int of_sink : {0, -100}) {
          fill(v_row(&problem, 0, sink, 0), 16, of_sink);
          check_proof(problem);
        }
      }
    }
  }
}

// A sink on the first token, which the specification of the CPU tiers makes exact.
class FirstTokenSink : public Softmax {};
INSTANTIATE_TEST_SUITE_P(Kernels, FirstTokenSink, testing::ValuesIn(cpu_tiers()), test_name);

// Keys of normal scores below a first key of `height` whose value is `of_sink`.
HostProblem problem_with_sink(std::int64_t keys, double height, int of_sink, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  HostProblem problem = problem_with_scores(
      scores_of(keys, [&](std::int64_t j) { return j == 0 ? height : normal(random); }));
  std::uniform_int_distribution<int> value(-127, 127);
  for (std::int64_t j = 0; j < keys; ++j) {
    for (int d = 0; d < 16; ++d) {
      v_row(&problem, 0, j, 0)[d] = static_cast<std::int8_t>(j == 0 ? of_sink : value(random));
    }
  }
  return problem;
}

// The other keys share 1 - p_0 of the mass, and what the proof bounds is their share's error. With
// v_0 = 0 the output is theirs alone, and as accurate as if there were no sink.
TEST_P(FirstTokenSink, CostsTheOtherKeysNothing) {
  std::uint64_t index = 0;
  for (const double height : {6.0, 8.0, 9.0, 11.0, 11.78, 12.0, 14.0, 20.0, 30.0}) {
    for (const std::int64_t keys : {2, 72, 128, 1024, 3000}) {
      for (const int of_sink : {0, 100}) {
        const HostProblem problem = problem_with_sink(keys, height, of_sink, case_seed(index++));
        const Result expected = oracle(problem);
        const ValueSpread values = value_spreads(problem)[0];
        const double others = -std::expm1(height - static_cast<double>(expected.lse[0]));
        for (const Precision precision : kPrecisions) {
          const Result result = run(problem, precision);
          expect_close(kernel(), problem, result, expected, precision);
          double squares = 0;
          for (std::size_t d = 0; d < 16; ++d) {
            squares += std::pow(static_cast<double>(result.out[d]) - expected.out[d], 2);
          }
          // A float32 lse leaves 1e-6 of the mass in doubt; float32 sums do of the largest value.
          const double proven = precision == Precision::high ? 1e-3 : 6.6e-2;
          const double rounding = of_sink == 0 ? others : 1.0;
          EXPECT_LE(std::sqrt(squares),
                    proven * (others + 2e-6) * values.spread + 1e-6 * rounding * values.largest)
              << describe(problem, precision) << " sink of " << height << " with value " << of_sink
              << "\n"
              << reproduce();
        }
      }
    }
  }
}

// The weights of a row sum to 1 as its values see it: values that are all equal come out unchanged.
TEST_P(Softmax, WeightsSumToOne) {
  for (const double height : {0.0, 3.0, 6.3, 9.0, 14.0}) {
    for (const std::int64_t keys : {72, 700, 8192}) {
      HostProblem problem = problem_with_scores(scores_of(
          keys, [&](std::int64_t j) { return j % 90 == 7 ? height : static_cast<double>(j % 3); }));
      for (const Precision precision : kPrecisions) {
        const Result result = run(problem, precision);
        EXPECT_NEAR(out_row(problem, result, 0, 0, 0)[1], 100, 1e-3)
            << describe(problem, precision) << " sinks of " << height;
      }
    }
  }
}

TEST_P(Softmax, SinksInEveryGroup) {
  for (const std::int64_t every : {64, 128, 200}) {
    const auto score = [&](std::int64_t j) { return j % every == 5 ? 6.3 : 0.0; };
    HostProblem problem = problem_with_scores(scores_of(4096, score));
    for (std::int64_t j = 0; j < 4096; ++j) {
      v_row(&problem, 0, j, 0)[2] = static_cast<std::int8_t>(j % every == 5 ? 0 : 100);
    }
    check(problem);
  }
}

// exp at its extremes: two keys whose scores differ by `gap`.
TEST_P(Softmax, GapsBetweenTwoKeys) {
  for (const double gap :
       {0.0, 1e-3, 0.5, 0.6931, 10.0, 86.9, 87.0, 88.0, 88.8, 103.0, 104.0, 1e4, 1e5, 1e30}) {
    for (const bool first_is_higher : {true, false}) {
      HostProblem problem = blank_problem({1, 1, 2, 1, 1, 1}, Mask::full());
      problem.softmax_scale = static_cast<float>(gap);
      problem.q = {1};
      problem.k = {static_cast<std::int8_t>(first_is_higher),
                   static_cast<std::int8_t>(!first_is_higher)};
      problem.v = {static_cast<std::int8_t>(first_is_higher ? 100 : -28),
                   static_cast<std::int8_t>(first_is_higher ? -28 : 100)};
      const double weight = 1 / (1 + std::exp(-gap));
      for (const Precision precision : kPrecisions) {
        const Result result = run(problem, precision);
        EXPECT_NEAR(result.out[0], 100 * weight - 28 * (1 - weight),
                    128 * verify::error_bound(precision))
            << "gap " << gap;
        if (gap > 104) {
          EXPECT_FLOAT_EQ(result.out[0], 100.0F) << "nothing is left of the lower key";
        }
        const double lse = gap + std::log1p(std::exp(-gap));
        EXPECT_NEAR(result.lse[0], lse, verify::lse_bound(precision) * std::max(1.0, lse));
      }
    }
  }
}

TEST_P(Softmax, HugeFiniteScores) {
  for (const float scale : {1e5F, 1e30F, 3e38F}) {
    HostProblem problem = blank_problem({1, 1, 3, 1, 1, 1}, Mask::full());
    problem.softmax_scale = scale;
    problem.q = {1};
    problem.k = {-1, 1, 0};
    problem.v = {11, 77, -128};
    for (const Precision precision : kPrecisions) {
      const Result result = run(problem, precision);
      EXPECT_FLOAT_EQ(result.out[0], 77.0F) << "scale " << scale;
      EXPECT_FLOAT_EQ(result.lse[0], scale) << "lse is the largest score";
      problem.q = {-1};
      const Result mirrored = run(problem, precision);
      EXPECT_FLOAT_EQ(mirrored.out[0], 11.0F) << "scale " << scale;
      problem.q = {1};
    }
    problem.k = {1, 1, -1};  // a tie at the top
    for (const Precision precision : kPrecisions) {
      EXPECT_NEAR(run(problem, precision).out[0], 44.0F, 1e-4) << "scale " << scale;
    }
  }
}

TEST_P(Softmax, ScoresBeyondFloat32) {
  // 127 * 127 * 16 * 3e38: no float32 holds the score, yet the attention is well defined.
  HostProblem problem = blank_problem({1, 2, 140, 1, 1, 16}, Mask::full());
  problem.softmax_scale = 3e38F;
  fill(problem.q.data(), 2 * 16, 127);
  fill(problem.k.data(), 140 * 16, -127);
  fill(problem.v.data(), 140 * 16, 3);
  fill(k_row(&problem, 0, 139, 0), 16, -126);
  fill(v_row(&problem, 0, 139, 0), 16, 90);
  for (const Precision precision : kPrecisions) {
    for (const float x : run(problem, precision).out) EXPECT_FLOAT_EQ(x, 90.0F);
  }
}

}  // namespace
}  // namespace qattn::test
