// The yardsticks themselves: generators hold their distribution, measures catch planted errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "verify/accuracy_rows.hpp"
#include "verify/cases.hpp"
#include "verify/distributions.hpp"
#include "verify/float_attention.hpp"
#include "verify/measure.hpp"

namespace qattn::verify {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Of two problems below, as first generated.
constexpr std::uint64_t kRandomFingerprint = 5609217762847809188U;
constexpr std::uint64_t kRowFingerprint = 14511919718719054140U;

// Scores in nats of one query against all keys.
std::vector<double> scores(const HostProblem& problem, std::int64_t i, std::int64_t h) {
  const Dimensions& d = problem.dimensions;
  const std::int64_t h_kv = h * d.heads_kv / d.heads_q;
  const double softmax_scale = problem.softmax_scale
                                   ? static_cast<double>(*problem.softmax_scale)
                                   : 1 / std::sqrt(static_cast<double>(d.head_dim));
  const double factor = softmax_scale * problem.q_scale[static_cast<std::size_t>(h)] *
                        problem.k_scale[static_cast<std::size_t>(h_kv)];
  const std::int8_t* const q = problem.q.data() + (i * d.heads_q + h) * d.head_dim;
  std::vector<double> result;
  for (std::int64_t j = 0; j < d.seq_k; ++j) {
    const std::int8_t* const k = problem.k.data() + (j * d.heads_kv + h_kv) * d.head_dim;
    std::int64_t dot = 0;
    for (std::int64_t c = 0; c < d.head_dim; ++c) dot += std::int64_t{q[c]} * k[c];
    result.push_back(factor * static_cast<double>(dot));
  }
  return result;
}

struct Moments {
  double mean = 0, sd = 0, min = 0, max = 0;
};

template <typename T>
Moments moments(const std::vector<T>& values) {
  Moments m;
  const auto n = static_cast<double>(values.size());
  for (const T value : values) m.mean += static_cast<double>(value) / n;
  for (const T value : values) m.sd += std::pow(static_cast<double>(value) - m.mean, 2) / n;
  m.sd = std::sqrt(m.sd);
  m.min = static_cast<double>(*std::min_element(values.begin(), values.end()));
  m.max = static_cast<double>(*std::max_element(values.begin(), values.end()));
  return m;
}

std::uint64_t fingerprint(const HostProblem& problem) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const auto* tensor : {&problem.q, &problem.k, &problem.v}) {
    for (const std::int8_t value : *tensor) {
      hash = (hash ^ static_cast<std::uint8_t>(value)) * 0x100000001b3U;
    }
  }
  return hash;
}

const AccuracyRow& row_named(const std::string& name) {
  for (const AccuracyRow& row : accuracy_rows()) {
    if (row.name == name) return row;
  }
  throw std::out_of_range("no accuracy row " + name);
}

TEST(Distributions, UniformCoversEveryInteger) {
  std::vector<std::int8_t> values(100003);
  Random random(1);
  fill_uniform(values, random);
  const Moments m = moments(values);
  EXPECT_NEAR(m.mean, -0.5, 1.0);
  EXPECT_NEAR(m.sd, std::sqrt((256.0 * 256 - 1) / 12), 0.5);
  EXPECT_EQ(std::set<std::int8_t>(values.begin(), values.end()).size(), 256U);
}

TEST(Distributions, NormalIsNormal) {
  std::vector<std::int8_t> values(400003);
  Random random(2);
  fill_normal(values, random);
  const Moments m = moments(values);
  EXPECT_NEAR(m.mean, 0, 0.25);
  EXPECT_NEAR(m.sd, kNormalSd, 0.15);
  EXPECT_GE(m.min, -127);
  EXPECT_LT(m.min, -110);
  EXPECT_GT(m.max, 110);
  for (const double z : {0.5, 1.0, 2.0, 3.0}) {
    // A whole number of steps lies within z standard deviations; compare with just that many.
    const double bound = std::floor(z * kNormalSd) + 0.5;
    const auto inside = std::count_if(values.begin(), values.end(), [&](std::int8_t value) {
      return std::abs(static_cast<double>(value)) < bound;
    });
    EXPECT_NEAR(static_cast<double>(inside) / static_cast<double>(values.size()),
                std::erf(bound / (kNormalSd * std::sqrt(2.0))), 0.003)
        << z;
  }
}

TEST(Distributions, SameSeedSameDataOnEveryMachine) {
  EXPECT_EQ(Random(0).next(), 0xe220a8397b1dcdafU);  // published output of SplitMix64
  const Dimensions dimensions{2, 9, 17, 4, 2, 33};
  EXPECT_EQ(fingerprint(random_problem(dimensions, Mask::causal(), 1)), kRandomFingerprint);
  const AccuracyRow& row = row_named("sink_6.3_equal_72");
  EXPECT_EQ(fingerprint(row.make(row)), kRowFingerprint);
  EXPECT_NE(fingerprint(random_problem(dimensions, Mask::causal(), 2)), kRandomFingerprint);
}

TEST(RandomProblem, ScalesDifferAndScoresHaveTheSpreadAskedFor) {
  const HostProblem problem = random_problem({1, 40, 700, 6, 3, 96}, Mask::full(), 7, 2.0);
  for (const auto* scales : {&problem.q_scale, &problem.k_scale, &problem.v_scale}) {
    EXPECT_EQ(std::set<float>(scales->begin(), scales->end()).size(), scales->size());
    for (const float scale : *scales) EXPECT_TRUE(scale > 0 && scale < 0.5F) << scale;
  }
  for (std::int64_t h = 0; h < 6; ++h) {
    double sum = 0;
    for (std::int64_t i = 0; i < 40; ++i) sum += std::pow(moments(scores(problem, i, h)).sd, 2);
    const double sd = std::sqrt(sum / 40);
    EXPECT_GT(sd, 2.0 * 0.75 * 0.95) << h;
    EXPECT_LT(sd, 2.0 * 1.25 * 1.05) << h;
  }
}

TEST(AccuracyRows, AreTheTable) {
  std::set<std::string> names;
  for (const AccuracyRow& row : accuracy_rows()) {
    names.insert(row.name);
    EXPECT_EQ(row.quick, row.keys <= 8192) << row.name;
  }
  EXPECT_EQ(names.size(), accuracy_rows().size());
  EXPECT_EQ(names.size(), 11U);
}

// One row per test, so that a long one says where it is.
class AccuracyRowTest : public testing::TestWithParam<int> {};

TEST_P(AccuracyRowTest, ScoresHoldTheirDistribution) {
  const AccuracyRow& row = accuracy_rows().at(static_cast<std::size_t>(GetParam()));
  SCOPED_TRACE(row.name);
  const HostProblem problem = row.make(row);
  const Dimensions& d = problem.dimensions;
  EXPECT_EQ(d.seq_q, 64);
  EXPECT_EQ(d.seq_k, row.keys);
  EXPECT_EQ(d.head_dim, 128);
  ASSERT_GE(d.heads_q, 2);
  EXPECT_NE(problem.q_scale[0], problem.q_scale[1]);
  EXPECT_NE(problem.k_scale[0], problem.k_scale[1]);
  EXPECT_NE(problem.v_scale[0], problem.v_scale[1]);
  EXPECT_NEAR(moments(problem.v).sd, kNormalSd, 0.5);

  const bool normal = row.name.rfind("normal", 0) == 0;
  const bool equal = row.name.rfind("sink_6.3", 0) == 0;
  const double noise_sd = normal ? row.parameter : equal ? 0.0 : 1.0;
  const std::int64_t sinks = normal ? 0 : row.name == "sink_6.3_in_every_64_8192" ? 128 : 1;
  double variance = 0;
  const std::int64_t queries = row.keys > 8192 ? 4 : d.seq_q;
  for (std::int64_t i = 0; i < queries; ++i) {
    for (std::int64_t h = 0; h < d.heads_q; ++h) {
      std::vector<double> s = scores(problem, i, h);
      std::sort(s.begin(), s.end());
      const std::vector<double> others(s.begin(), s.end() - sinks);
      const Moments noise = moments(others);
      variance += noise.sd * noise.sd / static_cast<double>(queries * d.heads_q);
      if (equal) {
        EXPECT_EQ(noise.min, noise.max);
      }
      const double tolerance = 0.02 + 5 * noise.sd / std::sqrt(static_cast<double>(others.size()));
      for (auto sink = s.end() - sinks; sink != s.end(); ++sink) {
        EXPECT_NEAR(*sink - noise.mean, row.parameter, tolerance) << "query " << i << " head " << h;
      }
    }
  }
  EXPECT_NEAR(std::sqrt(variance), noise_sd, 0.03 * noise_sd + 1e-9);
}

INSTANTIATE_TEST_SUITE_P(All, AccuracyRowTest,
                         testing::Range(0, static_cast<int>(accuracy_rows().size())));

TEST(Cases, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  const std::vector<Case> all = built_in_cases(false);
  for (const Case& built_in : all) names.insert(built_in.name);
  EXPECT_EQ(names.size(), all.size());
  EXPECT_EQ(built_in_cases(true).size() + 3, all.size());
}

// Two keys whose scores differ by log 3: weights 1/4 and 3/4.
TEST(FloatAttention, TwoKeysByHand) {
  FloatProblem problem;
  problem.dimensions = {1, 2, 2, 1, 1, 2};
  problem.softmax_scale = 0.5F;
  const auto log3 = static_cast<float>(std::log(3.0));
  problem.q = {2, 0, 2, 0};
  problem.k = {0, 9, log3, -9};
  problem.v = {4, 8, 0, -8};
  const Result causal = float_attention(problem);
  EXPECT_EQ(causal.out[0], 4.0F);  // the first query sees the first key alone
  EXPECT_EQ(causal.out[1], 8.0F);
  EXPECT_FLOAT_EQ(causal.out[2], 1.0F);
  EXPECT_FLOAT_EQ(causal.out[3], -4.0F);
  EXPECT_EQ(causal.lse[0], 0.0F);
  EXPECT_FLOAT_EQ(causal.lse[1], static_cast<float>(std::log(4.0)));
  problem.mask = Mask::full();
  EXPECT_FLOAT_EQ(float_attention(problem).out[0], 1.0F);
  problem.mask = Mask::window(1, 0);
  EXPECT_THROW(float_attention(problem), Error);
}

// Two programs of the same formula, written apart.
TEST(FloatAttention, AgreesWithTheReferenceKernel) {
  for (const Dimensions& d : {Dimensions{2, 70, 131, 6, 2, 17}, Dimensions{1, 9, 4, 2, 1, 8},
                              Dimensions{1, 3, 0, 2, 1, 8}}) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      const HostProblem problem = random_problem(d, mask, 11);
      const Measure m =
          measure(problem, run_reference(problem), float_attention(dequantise(problem)));
      EXPECT_EQ(m.fault, "");
      EXPECT_LT(m.relative, 1e-6);
      EXPECT_LT(m.lse, 1e-6);
    }
  }
}

class MeasureTest : public testing::Test {
 protected:
  Measure measured() const { return measure(problem_, result_, reference_); }
  float& out(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t channel) {
    const Dimensions& d = problem_.dimensions;
    const std::int64_t row = (b * d.seq_q + i) * d.heads_q + h;
    return result_.out.at(static_cast<std::size_t>(row * d.head_dim + channel));
  }
  // Queries 0 to 2 see no key.
  HostProblem problem_ = random_problem({2, 8, 5, 4, 2, 16}, Mask::causal(), 5);
  Result reference_ = float_attention(dequantise(problem_));
  Result result_ = reference_;
};

TEST_F(MeasureTest, NothingToFind) {
  const Measure m = measured();
  EXPECT_EQ(m.relative, 0);
  EXPECT_EQ(m.row, 0);
  EXPECT_EQ(m.lse, 0);
  EXPECT_EQ(m.fault, "");
  EXPECT_TRUE(passes(m, Precision::high));
}

TEST_F(MeasureTest, ErrorOfAGivenSizeIsMeasured) {
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t channel = 0; channel < 16; ++channel) out(1, i, 3, channel) *= 1.01F;
  }
  EXPECT_NEAR(measured().relative, 0.01, 1e-6);
  EXPECT_TRUE(passes(measured(), Precision::fast));
  EXPECT_FALSE(passes(measured(), Precision::high));
  EXPECT_NEAR(relative_error(problem_.dimensions, result_.out, reference_.out), 0.01, 1e-6);
}

TEST_F(MeasureTest, SmallHeadDoesNotHideBehindALargeOne) {
  problem_.v_scale = {1e6F, 1e-6F};
  reference_ = result_ = float_attention(dequantise(problem_));
  for (std::int64_t channel = 0; channel < 16; ++channel) out(0, 7, 2, channel) = 0;
  EXPECT_GT(measured().relative, 0.1);
}

// A dead row among thousands costs the Frobenius norm little.
TEST(Measure, DeadRowDoesNotHideAmongOthers) {
  const HostProblem problem = random_problem({1, 8192, 2, 1, 1, 16}, Mask::full(), 6);
  const Result reference = float_attention(dequantise(problem));
  Result result = reference;
  std::fill_n(result.out.begin() + 4000 * 16, 16, 0.0F);
  const Measure m = measure(problem, result, reference);
  EXPECT_LT(m.relative, error_bound(Precision::fast));
  EXPECT_GT(m.row, error_bound(Precision::fast));
  EXPECT_FALSE(passes(m, Precision::fast));
}

// One query that sees one key, v of norm 5: an error of 0.05 is 0.05 / (4 * 5).
TEST(Measure, RowIsMeasuredByTheVisibleValues) {
  HostProblem problem = random_problem({1, 2, 2, 1, 1, 2}, Mask::causal(), 6);
  problem.v = {3, 4, 100, 100};
  problem.v_scale = {1.0F};
  const Result reference = float_attention(dequantise(problem));
  Result result = reference;
  result.out[0] += 0.05F;
  EXPECT_NEAR(measure(problem, result, reference).row, 0.05 / 20, 1e-6);
}

TEST_F(MeasureTest, NanAndInfinityAreFaults) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    result_ = reference_;
    out(1, 5, 2, 3) = bad;
    const Measure m = measured();
    EXPECT_EQ(m.fault.rfind("channel 3 of (batch 1, query 5, head 2)", 0), 0U) << m.fault;
    EXPECT_FALSE(passes(m, Precision::fast));
    EXPECT_GT(m.relative, 1);
  }
}

TEST_F(MeasureTest, RowWithoutKeysMustBeZero) {
  ASSERT_EQ(out(0, 2, 1, 0), 0.0F);
  out(0, 2, 1, 0) = 1e-30F;
  EXPECT_NE(measured().fault, "");
  EXPECT_FALSE(passes(measured(), Precision::fast));
}

TEST_F(MeasureTest, LseErrors) {
  const std::size_t visible = 5;  // query 5 of head 0
  result_.lse[visible] += 0.1F;
  EXPECT_GT(measured().lse, 0.01);
  EXPECT_FALSE(passes(measured(), Precision::fast));
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    result_.lse[visible] = bad;
    EXPECT_NE(measured().fault, "") << bad;
    EXPECT_FALSE(passes(measured(), Precision::fast));
  }
  result_ = reference_;
  for (const float bad : {0.0F, kInfinity, kNan}) {
    result_.lse[0] = bad;  // query 0 sees nothing
    EXPECT_NE(measured().fault, "") << bad;
    EXPECT_FALSE(passes(measured(), Precision::fast));
  }
}

// A NaN scale takes its own head, whose reference says nothing; the others still count.
TEST_F(MeasureTest, UndefinedHeadIsLeftOutAndNoOther) {
  problem_.q_scale[1] = kNan;
  reference_ = result_ = run_reference(problem_);
  ASSERT_TRUE(std::isnan(out(0, 7, 1, 0)));
  out(0, 7, 1, 0) = 3.0F;
  EXPECT_EQ(measured().fault, "");
  EXPECT_EQ(measured().relative, 0);
  out(0, 7, 0, 0) += 1.0F;
  EXPECT_GT(measured().relative, 0.01);
}

TEST_F(MeasureTest, ErrorWhereNothingIsExpectedIsInfinite) {
  problem_.v_scale = {0.0F, 0.0F};
  reference_ = result_ = float_attention(dequantise(problem_));
  EXPECT_TRUE(passes(measured(), Precision::high));
  out(0, 7, 0, 0) = 1e-20F;
  EXPECT_EQ(measured().relative, kInfinity);
  EXPECT_EQ(measured().row, kInfinity);
}

TEST_F(MeasureTest, ResultOfAnotherShapeIsRefused) {
  result_.out.pop_back();
  EXPECT_THROW(measured(), Error);
}

}  // namespace
}  // namespace qattn::verify
