#include "verify/cases.hpp"

#include <algorithm>

#include "verify/accuracy_rows.hpp"

namespace qattn::verify {
namespace {

struct ShapeCase {
  const char* what;
  Dimensions dimensions;  // batch, seq_q, seq_k, heads_q, heads_kv, head_dim
  bool causal;
};

const ShapeCase kShapes[] = {
    {"tiny", {2, 72, 72, 4, 4, 32}, true},
    {"one_key", {2, 1, 1, 2, 1, 64}, false},
    {"decode", {3, 1, 1000, 8, 2, 64}, true},
    {"decode_full", {1, 1, 257, 4, 1, 128}, false},
    {"continue", {2, 5, 130, 6, 2, 64}, true},
    {"more_queries", {2, 7, 3, 4, 2, 64}, true},
    {"more_queries_by_tiles", {1, 300, 44, 2, 1, 64}, true},
    {"no_keys", {2, 3, 0, 2, 1, 64}, true},
    {"long_causal", {1, 520, 2500, 2, 1, 64}, true},
    {"groups_of_7", {1, 33, 33, 28, 4, 32}, true},
    {"groups_of_6", {2, 130, 257, 12, 2, 64}, true},
    {"ragged", {1, 65, 129, 3, 3, 128}, false},
    {"head_dim", {1, 9, 77, 2, 1, 1}, true},
    {"head_dim", {1, 9, 77, 2, 1, 3}, false},
    {"head_dim", {1, 33, 65, 2, 1, 17}, true},
    {"head_dim", {1, 33, 65, 2, 1, 80}, false},
    {"head_dim", {1, 33, 131, 2, 2, 127}, true},
    {"head_dim", {1, 33, 65, 2, 1, 129}, false},
    {"head_dim", {1, 70, 131, 2, 1, 255}, true},
    {"head_dim", {1, 70, 131, 2, 1, 256}, false},
};

std::string name_of(const ShapeCase& shape) {
  return std::string(shape.what) + "_" + shape.dimensions.to_string() +
         (shape.causal ? "_causal" : "_full");
}

HostProblem base(std::uint64_t seed) {
  return random_problem({2, 33, 77, 4, 2, 64}, Mask::causal(), seed);
}

// Queries of -128 against keys of -128, and one key in 32 of 127: the extremes of a dot product.
// The scores are 3 nats apart, so that a wrong product shows as a wrong weight.
HostProblem minus_128() {
  HostProblem problem = random_problem({1, 40, 100, 2, 1, 256}, Mask::full(), 3);
  const Dimensions& d = problem.dimensions;
  std::fill(problem.q.begin(), problem.q.end(), std::int8_t{-128});
  std::fill(problem.v.begin(), problem.v.end(), std::int8_t{-128});
  for (std::int64_t j = 0; j < d.seq_k; ++j) {
    const bool contrast = j % 32 == 5;
    const auto key = problem.k.begin() + j * d.head_dim;
    std::fill(key, key + d.head_dim, static_cast<std::int8_t>(contrast ? 127 : -128));
    if (contrast) problem.v[static_cast<std::size_t>(j * d.head_dim)] = 127;
  }
  problem.softmax_scale = 1.0F;
  problem.k_scale = {0.5F};
  const double distance = 128.0 * 255.0 * static_cast<double>(d.head_dim);
  problem.q_scale = {static_cast<float>(6.0 / distance), static_cast<float>(-6.0 / distance)};
  return problem;
}

// Every true score is near -20 while a key of zeros would score 0.
HostProblem low_scores() {
  HostProblem problem = random_problem({1, 9, 77, 2, 1, 64}, Mask::full(), 4);
  for (std::int8_t& value : problem.q) value = static_cast<std::int8_t>(127 - (value & 1));
  for (std::int8_t& value : problem.k) value = static_cast<std::int8_t>(-127 + (value & 1));
  problem.softmax_scale = 1.0F;
  problem.k_scale = {0.25F};
  problem.q_scale.assign(2, static_cast<float>(-20.0 / (-126.5 * 126.5 * 64 * 0.25)));
  return problem;
}

HostProblem negative_scales() {
  HostProblem problem = base(5);
  problem.q_scale[1] *= -1;
  problem.k_scale[1] *= -1;
  problem.v_scale[0] *= -1;
  return problem;
}

HostProblem zero_scales() {
  HostProblem problem = base(6);
  problem.q_scale[1] = 0;
  problem.v_scale[1] = 0;
  return problem;
}

// Scores hundreds of nats apart: one key takes everything, nothing overflows.
HostProblem far_scores() {
  HostProblem problem = base(7);
  problem.softmax_scale = 300.0F;
  return problem;
}

HostProblem rising_scores() {
  HostProblem problem = random_problem({1, 8, 1000, 2, 1, 32}, Mask::full(), 8);
  const Dimensions& d = problem.dimensions;
  std::fill(problem.q.begin(), problem.q.end(), std::int8_t{64});
  for (std::int64_t j = 0; j < d.seq_k; ++j) {
    const auto key = problem.k.begin() + j * d.head_dim;
    std::fill(key, key + d.head_dim, static_cast<std::int8_t>(j * 250 / d.seq_k - 125));
  }
  problem.softmax_scale = 1.0F;
  problem.k_scale = {0.5F};
  // Over 80 nats from the first key to the last, or the reverse.
  problem.q_scale = {80.0F / (64 * 32 * 250 * 0.5F), -80.0F / (64 * 32 * 250 * 0.5F)};
  return problem;
}

}  // namespace

std::vector<Case> built_in_cases(bool quick) {
  std::vector<Case> cases;
  for (const AccuracyRow& row : accuracy_rows()) {
    if (row.quick || !quick) cases.push_back({row.name, [&row] { return row.make(row); }});
  }
  std::uint64_t seed = 100;
  for (const ShapeCase& shape : kShapes) {
    cases.push_back({name_of(shape), [&shape, seed] {
                       const Mask mask = shape.causal ? Mask::causal() : Mask::full();
                       return random_problem(shape.dimensions, mask, seed);
                     }});
    ++seed;
  }
  cases.push_back({"minus_128", minus_128});
  cases.push_back({"low_scores", low_scores});
  cases.push_back({"negative_scales", negative_scales});
  cases.push_back({"zero_scales", zero_scales});
  cases.push_back({"far_scores", far_scores});
  cases.push_back({"rising_scores", rising_scores});
  return cases;
}

}  // namespace qattn::verify
