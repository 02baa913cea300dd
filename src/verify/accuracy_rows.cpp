#include "verify/accuracy_rows.hpp"

#include <cmath>

#include "verify/distributions.hpp"

namespace qattn::verify {
namespace {

constexpr std::int64_t kQueries = 64;
constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kHeadDim = 128;
// The first channels of q hold a constant, those of k are 0 except in a sink key: with them a sink
// stands the same height above the mean for every query. The other channels make the noise.
constexpr std::int64_t kSinkChannels = 16;
constexpr std::int8_t kSinkQuery = 127;
constexpr double kNoiseChannels = kHeadDim - kSinkChannels;

std::size_t index(std::int64_t token, std::int64_t head, std::int64_t channel) {
  return static_cast<std::size_t>((token * kHeads + head) * kHeadDim + channel);
}

// Nats per unit of the integer dot product that give the noise a standard deviation of `noise_sd`.
double score_unit(double noise_sd) {
  return noise_sd / (kNormalSd * kNormalSd * std::sqrt(kNoiseChannels));
}

std::uint64_t seed_of(const AccuracyRow& row) {
  std::uint64_t seed = 0x51;
  for (const char c : row.name) seed = seed * 131 + static_cast<unsigned char>(c);
  return seed;
}

// Scores normal with mean 0 and standard deviation `noise_sd`, v normal; scales differ by head
// while their product, which sets the distribution, does not.
HostProblem normal_scores(const AccuracyRow& row, const Mask& mask, double noise_sd) {
  HostProblem problem;
  problem.dimensions = {1, kQueries, row.keys, kHeads, kHeads, kHeadDim};
  problem.mask = mask;
  problem.q.resize(index(kQueries, 0, 0));
  problem.k.resize(index(row.keys, 0, 0));
  problem.v.resize(index(row.keys, 0, 0));
  Random random(seed_of(row));
  fill_normal(problem.q, random);
  fill_normal(problem.k, random);
  fill_normal(problem.v, random);
  for (std::int64_t h = 0; h < kHeads; ++h) {
    for (std::int64_t d = 0; d < kSinkChannels; ++d) {
      for (std::int64_t i = 0; i < kQueries; ++i) problem.q[index(i, h, d)] = kSinkQuery;
      for (std::int64_t j = 0; j < row.keys; ++j) problem.k[index(j, h, d)] = 0;
    }
  }
  problem.k_scale = {0.03F, 0.05F};
  problem.v_scale = {0.02F, 0.07F};
  const double softmax_scale = 1 / std::sqrt(static_cast<double>(kHeadDim));
  for (const float k_scale : problem.k_scale) {
    problem.q_scale.push_back(static_cast<float>(score_unit(noise_sd) / (softmax_scale * k_scale)));
  }
  return problem;
}

// Lifts the score of one key by `nats` for every query, on top of its noise channels.
void lift(HostProblem& problem, std::int64_t head, std::int64_t key, double nats, double unit) {
  // Up to half a unit of rounding: 0.007 nats at a noise of 1.
  const auto sum = static_cast<std::int64_t>(std::lround(nats / (unit * kSinkQuery)));
  for (std::int64_t d = 0; d < kSinkChannels; ++d) {
    const std::int64_t value = sum / kSinkChannels + (d < sum % kSinkChannels ? 1 : 0);
    problem.k[index(key, head, d)] = static_cast<std::int8_t>(value);
  }
}

// Models put their sink on the first token; the second head has it elsewhere, in the middle of a
// group of keys.
std::int64_t sink_key(const AccuracyRow& row, std::int64_t head) {
  return head == 0 ? 0 : row.keys - row.keys / 3;
}

// Every key of a head gets the same noise channels, so that all scores of a query are equal.
void make_keys_equal(HostProblem& problem) {
  for (std::int64_t j = 1; j < problem.dimensions.seq_k; ++j) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t d = 0; d < kHeadDim; ++d) {
        problem.k[index(j, h, d)] = problem.k[index(0, h, d)];
      }
    }
  }
}

HostProblem make_normal(const AccuracyRow& row) {
  return normal_scores(row, Mask::full(), row.parameter);
}

HostProblem make_normal_causal(const AccuracyRow& row) {
  return normal_scores(row, Mask::causal(), row.parameter);
}

// Noise of standard deviation 1, and one key at exactly `parameter`.
HostProblem make_sink(const AccuracyRow& row) {
  HostProblem problem = normal_scores(row, Mask::full(), 1.0);
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const std::int64_t key = sink_key(row, h);
    for (std::int64_t d = 0; d < kHeadDim; ++d) problem.k[index(key, h, d)] = 0;
    lift(problem, h, key, row.parameter, score_unit(1.0));
  }
  return problem;
}

HostProblem make_sink_among_equals(const AccuracyRow& row) {
  HostProblem problem = normal_scores(row, Mask::full(), 1.0);
  make_keys_equal(problem);
  for (std::int64_t h = 0; h < kHeads; ++h) {
    lift(problem, h, sink_key(row, h), row.parameter, score_unit(1.0));
  }
  return problem;
}

HostProblem make_sink_in_every_64(const AccuracyRow& row) {
  HostProblem problem = normal_scores(row, Mask::full(), 1.0);
  make_keys_equal(problem);
  for (std::int64_t h = 0; h < kHeads; ++h) {
    for (std::int64_t key = 21 * h; key < row.keys; key += 64) {
      lift(problem, h, key, row.parameter, score_unit(1.0));
    }
  }
  return problem;
}

}  // namespace

const std::vector<AccuracyRow>& accuracy_rows() {
  static const std::vector<AccuracyRow> rows = {
      {"normal_sd1_1024", true, make_normal, 1024, 1.0},
      {"normal_sd3_1024", true, make_normal, 1024, 3.0},
      {"normal_sd1_8192", true, make_normal, 8192, 1.0},
      {"normal_sd1_1024_causal", true, make_normal_causal, 1024, 1.0},
      {"sink_6_8192", true, make_sink, 8192, 6.0},
      {"sink_9_8192", true, make_sink, 8192, 9.0},
      {"sink_6.3_equal_72", true, make_sink_among_equals, 72, 6.3},
      {"sink_6.3_in_every_64_8192", true, make_sink_in_every_64, 8192, 6.3},
      {"sink_11_131072", false, make_sink, 131072, 11.0},
      {"sink_14_131072", false, make_sink, 131072, 14.0},
      {"sink_17.5_131072", false, make_sink, 131072, 17.5},
  };
  return rows;
}

}  // namespace qattn::verify
