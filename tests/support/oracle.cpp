#include "support/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace qattn::test {
namespace {

using verify::Dimensions;
using verify::HostProblem;
using verify::Result;

// Where all inputs are finite, the factor is clamped to the range of float32 (a rule of the API).
double score_factor(const HostProblem& problem, float q_scale, float k_scale) {
  const Dimensions& d = problem.dimensions;
  const double softmax_scale = problem.softmax_scale
                                   ? static_cast<double>(*problem.softmax_scale)
                                   : 1.0 / std::sqrt(static_cast<double>(d.head_dim));
  const double factor = softmax_scale * q_scale * k_scale;
  if (!std::isfinite(q_scale) || !std::isfinite(k_scale)) return factor;
  const double limit = std::numeric_limits<float>::max();
  return std::min(std::max(factor, -limit), limit);
}

// One row, (batch, query, query head), of a problem.
class Row {
 public:
  Row(const HostProblem& problem, std::int64_t batch, std::int64_t token, std::int64_t head)
      : problem_(problem), batch_(batch), head_(head), head_kv_(kv_head(problem, head)) {
    const Dimensions& d = problem.dimensions;
    index_ = (batch * d.seq_q + token) * d.heads_q + head;
    lse_index_ = (batch * d.heads_q + head) * d.seq_q + token;
    const std::int64_t visible = std::max<std::int64_t>(0, token + d.seq_k - d.seq_q + 1);
    keys_ = problem.mask.kind == Mask::Kind::full ? d.seq_k : std::min(d.seq_k, visible);
    compute_weights();
  }

  std::int64_t index() const { return index_; }

  void attend(Result* result) const {
    const std::int64_t head_dim = problem_.dimensions.head_dim;
    for (std::int64_t x = 0; x < head_dim; ++x) {
      double sum = 0;
      for (std::int64_t j = 0; j < keys_; ++j) sum += weight_[at(j)] * v(j)[x];
      result->out[at(index_ * head_dim + x)] =
          keys_ == 0 ? 0.0F : static_cast<float>(v_scale() * sum / weight_sum_);
    }
    result->lse[at(lse_index_)] = keys_ == 0 ? -std::numeric_limits<float>::infinity()
                                             : static_cast<float>(highest_ + std::log(weight_sum_));
  }

  ValueSpread value_spread() const {
    const std::int64_t head_dim = problem_.dimensions.head_dim;
    std::vector<double> mean(at(head_dim));
    for (std::int64_t j = 0; j < keys_; ++j) {
      for (std::int64_t x = 0; x < head_dim; ++x) {
        mean[at(x)] += weight_[at(j)] / weight_sum_ * v(j)[x];
      }
    }
    ValueSpread result;
    for (std::int64_t j = 0; j < keys_; ++j) {
      double from_mean = 0;
      double from_zero = 0;
      for (std::int64_t x = 0; x < head_dim; ++x) {
        from_mean += (v(j)[x] - mean[at(x)]) * (v(j)[x] - mean[at(x)]);
        from_zero += v(j)[x] * v(j)[x];
      }
      result.spread = std::max(result.spread, std::sqrt(from_mean) * std::abs(v_scale()));
      result.largest = std::max(result.largest, std::sqrt(from_zero) * std::abs(v_scale()));
    }
    return result;
  }

 private:
  static std::int64_t kv_head(const HostProblem& problem, std::int64_t head) {
    return head / (problem.dimensions.heads_q / problem.dimensions.heads_kv);
  }
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
  const std::int8_t* kv_row(const std::vector<std::int8_t>& tensor, std::int64_t key) const {
    const Dimensions& d = problem_.dimensions;
    return tensor.data() + ((batch_ * d.seq_k + key) * d.heads_kv + head_kv_) * d.head_dim;
  }
  const std::int8_t* v(std::int64_t key) const { return kv_row(problem_.v, key); }
  double v_scale() const { return problem_.v_scale[at(head_kv_)]; }

  void compute_weights() {
    const double factor =
        score_factor(problem_, problem_.q_scale[at(head_)], problem_.k_scale[at(head_kv_)]);
    const std::int64_t head_dim = problem_.dimensions.head_dim;
    const std::int8_t* q = problem_.q.data() + index_ * head_dim;
    for (std::int64_t j = 0; j < keys_; ++j) {
      const std::int8_t* k = kv_row(problem_.k, j);
      std::int64_t dot = 0;
      for (std::int64_t x = 0; x < head_dim; ++x) dot += std::int64_t{q[x]} * k[x];
      weight_.push_back(factor * static_cast<double>(dot));
      highest_ = std::max(highest_, weight_.back());
    }
    for (double& weight : weight_) {
      weight = std::exp(weight - highest_);
      weight_sum_ += weight;
    }
  }

  const HostProblem& problem_;
  std::int64_t batch_;
  std::int64_t head_;
  std::int64_t head_kv_;
  std::int64_t index_ = 0;  // of the row in (batch, seq_q, heads_q)
  std::int64_t lse_index_ = 0;
  std::int64_t keys_ = 0;
  double highest_ = -std::numeric_limits<double>::infinity();
  double weight_sum_ = 0;
  std::vector<double> weight_;  // not yet divided by their sum
};

template <typename Visit>
void for_each_row(const HostProblem& problem, Visit visit) {
  const Dimensions& d = problem.dimensions;
  for (std::int64_t b = 0; b < d.batch; ++b) {
    for (std::int64_t i = 0; i < d.seq_q; ++i) {
      for (std::int64_t h = 0; h < d.heads_q; ++h) visit(Row(problem, b, i, h));
    }
  }
}

}  // namespace

Result oracle(const HostProblem& problem) {
  Result result;
  result.out.resize(static_cast<std::size_t>(problem.out_size()));
  result.lse.resize(static_cast<std::size_t>(problem.lse_size()));
  for_each_row(problem, [&](const Row& row) { row.attend(&result); });
  return result;
}

std::vector<ValueSpread> value_spreads(const HostProblem& problem) {
  std::vector<ValueSpread> spreads;
  for_each_row(problem, [&](const Row& row) { spreads.push_back(row.value_spread()); });
  return spreads;
}

}  // namespace qattn::test
