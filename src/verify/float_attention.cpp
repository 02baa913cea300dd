#include "verify/float_attention.hpp"

#include <Eigen/Core>
#include <cmath>
#include <exception>
#include <limits>

#include "verify/visible.hpp"

namespace qattn::verify {
namespace {

using RowMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using FloatRows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using HeadRows = Eigen::Map<const FloatRows, 0, Eigen::OuterStride<>>;

// Queries that share one pass over K and V: enough that converting those to double costs little.
constexpr std::int64_t kQueryBlock = 64;

// Tokens [begin, begin + count) of one head of a (batch, seq, heads, head_dim) tensor.
HeadRows rows_of(const std::vector<float>& tensor, const Shape& shape, std::int64_t batch,
                 std::int64_t head, std::int64_t begin, std::int64_t count) {
  const std::int64_t first = ((batch * shape.seq + begin) * shape.heads + head) * shape.head_dim;
  return HeadRows(tensor.data() + first, count, shape.head_dim,
                  Eigen::OuterStride<>(shape.heads * shape.head_dim));
}

std::vector<float> dequantise(const std::vector<std::int8_t>& values,
                              const std::vector<float>& scales, std::int64_t head_dim) {
  std::vector<float> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t head = i / static_cast<std::size_t>(head_dim) % scales.size();
    result[i] = scales[head] * static_cast<float>(values[i]);
  }
  return result;
}

// Queries [begin, begin + count) of one head.
void attend(const FloatProblem& problem, std::int64_t b, std::int64_t h, std::int64_t begin,
            std::int64_t count, Result& result) {
  const Dimensions& d = problem.dimensions;
  const Shape shape_q{d.batch, d.seq_q, d.heads_q, d.head_dim};
  const Shape shape_kv{d.batch, d.seq_k, d.heads_kv, d.head_dim};
  const std::int64_t h_kv = h * d.heads_kv / d.heads_q;
  const double scale = problem.softmax_scale ? static_cast<double>(*problem.softmax_scale)
                                             : 1 / std::sqrt(static_cast<double>(d.head_dim));
  const std::int64_t keys = visible_keys(d, problem.mask, begin + count - 1);

  const RowMatrix q = rows_of(problem.q, shape_q, b, h, begin, count).cast<double>() * scale;
  const RowMatrix k = rows_of(problem.k, shape_kv, b, h_kv, 0, keys).cast<double>();
  RowMatrix p = q * k.transpose();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t visible = visible_keys(d, problem.mask, begin + i);
    double lse = -std::numeric_limits<double>::infinity();
    if (visible > 0) {
      auto row = p.row(i).head(visible).array();
      const double max = row.maxCoeff();
      row = (row - max).exp();
      const double sum = row.sum();
      row /= sum;
      lse = max + std::log(sum);
    }
    p.row(i).tail(keys - visible).setZero();
    result.lse[static_cast<std::size_t>((b * d.heads_q + h) * d.seq_q + begin + i)] =
        static_cast<float>(lse);
  }
  const RowMatrix v = rows_of(problem.v, shape_kv, b, h_kv, 0, keys).cast<double>();
  const RowMatrix out = p * v;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = (b * d.seq_q + begin + i) * d.heads_q + h;
    Eigen::Map<Eigen::RowVectorXf>(result.out.data() + row * d.head_dim, d.head_dim) =
        out.row(i).cast<float>();
  }
}

}  // namespace

FloatProblem dequantise(const HostProblem& problem) {
  const std::int64_t head_dim = problem.dimensions.head_dim;
  return {problem.dimensions,
          problem.mask,
          problem.softmax_scale,
          dequantise(problem.q, problem.q_scale, head_dim),
          dequantise(problem.k, problem.k_scale, head_dim),
          dequantise(problem.v, problem.v_scale, head_dim)};
}

Result float_attention(const FloatProblem& problem) {
  const Dimensions& d = problem.dimensions;
  visible_keys(d, problem.mask,
               0);  // refuses a mask that it does not know, before any thread starts
  Result result;
  result.out.resize(problem.q.size());
  result.lse.resize(static_cast<std::size_t>(d.batch * d.heads_q * d.seq_q));
  const std::int64_t blocks = (d.seq_q + kQueryBlock - 1) / kQueryBlock;
  std::exception_ptr failure;  // no exception may leave the parallel region
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t task = 0; task < d.batch * d.heads_q * blocks; ++task) {
    try {
      const std::int64_t begin = task % blocks * kQueryBlock;
      const std::int64_t b_h = task / blocks;
      attend(problem, b_h / d.heads_q, b_h % d.heads_q, begin,
             std::min(kQueryBlock, d.seq_q - begin), result);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return result;
}

}  // namespace qattn::verify
