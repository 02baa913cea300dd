#include "support/problems.hpp"

#include <algorithm>

namespace qattn::test {

using verify::Dimensions;
using verify::HostProblem;
using verify::Result;

HostProblem blank_problem(const Dimensions& d, Mask mask) {
  HostProblem problem;
  problem.dimensions = d;
  problem.mask = mask;
  problem.softmax_scale = 1.0F;
  problem.q.assign(static_cast<std::size_t>(d.batch * d.seq_q * d.heads_q * d.head_dim), 0);
  problem.k.assign(static_cast<std::size_t>(d.batch * d.seq_k * d.heads_kv * d.head_dim), 0);
  problem.v = problem.k;
  problem.q_scale.assign(static_cast<std::size_t>(d.heads_q), 1.0F);
  problem.k_scale.assign(static_cast<std::size_t>(d.heads_kv), 1.0F);
  problem.v_scale = problem.k_scale;
  return problem;
}

std::int8_t* q_row(HostProblem* problem, std::int64_t batch, std::int64_t token,
                   std::int64_t head) {
  const Dimensions& d = problem->dimensions;
  return problem->q.data() + ((batch * d.seq_q + token) * d.heads_q + head) * d.head_dim;
}

std::int8_t* k_row(HostProblem* problem, std::int64_t batch, std::int64_t token,
                   std::int64_t head) {
  const Dimensions& d = problem->dimensions;
  return problem->k.data() + ((batch * d.seq_k + token) * d.heads_kv + head) * d.head_dim;
}

std::int8_t* v_row(HostProblem* problem, std::int64_t batch, std::int64_t token,
                   std::int64_t head) {
  const Dimensions& d = problem->dimensions;
  return problem->v.data() + ((batch * d.seq_k + token) * d.heads_kv + head) * d.head_dim;
}

const float* out_row(const HostProblem& problem, const Result& result, std::int64_t batch,
                     std::int64_t token, std::int64_t head) {
  const Dimensions& d = problem.dimensions;
  return result.out.data() + ((batch * d.seq_q + token) * d.heads_q + head) * d.head_dim;
}

float lse_at(const HostProblem& problem, const Result& result, std::int64_t batch,
             std::int64_t head, std::int64_t token) {
  const Dimensions& d = problem.dimensions;
  return result.lse[static_cast<std::size_t>((batch * d.heads_q + head) * d.seq_q + token)];
}

void fill(std::int8_t* row, std::int64_t count, int value) {
  std::fill_n(row, count, static_cast<std::int8_t>(value));
}

HostProblem batch_entry(const HostProblem& problem, std::int64_t batch) {
  HostProblem part = problem;
  part.dimensions.batch = 1;
  const auto slice = [&](const std::vector<std::int8_t>& all) {
    const std::int64_t size = static_cast<std::int64_t>(all.size()) / problem.dimensions.batch;
    return std::vector<std::int8_t>(all.begin() + batch * size, all.begin() + (batch + 1) * size);
  };
  part.q = slice(problem.q);
  part.k = slice(problem.k);
  part.v = slice(problem.v);
  return part;
}

HostProblem decode_step(const HostProblem& problem, std::int64_t token) {
  const Dimensions& d = problem.dimensions;
  HostProblem part = problem;
  part.dimensions.seq_q = 1;
  if (problem.mask.kind == Mask::Kind::causal) {
    part.dimensions.seq_k = std::clamp<std::int64_t>(token + d.seq_k - d.seq_q + 1, 0, d.seq_k);
  }
  // Copies tokens [from, from + count) of every batch entry.
  const auto slice = [&](const std::vector<std::int8_t>& all, std::int64_t seq, std::int64_t row,
                         std::int64_t from, std::int64_t count) {
    std::vector<std::int8_t> out;
    for (std::int64_t b = 0; b < d.batch; ++b) {
      const auto begin = all.begin() + (b * seq + from) * row;
      out.insert(out.end(), begin, begin + count * row);
    }
    return out;
  };
  part.q = slice(problem.q, d.seq_q, d.heads_q * d.head_dim, token, 1);
  part.k = slice(problem.k, d.seq_k, d.heads_kv * d.head_dim, 0, part.dimensions.seq_k);
  part.v = slice(problem.v, d.seq_k, d.heads_kv * d.head_dim, 0, part.dimensions.seq_k);
  return part;
}

std::string describe(const HostProblem& problem, Precision precision) {
  return problem.dimensions.to_string() +
         (problem.mask.kind == Mask::Kind::causal ? " causal" : " full") +
         (precision == Precision::high ? " high" : " fast");
}

}  // namespace qattn::test
