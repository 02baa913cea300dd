#include "reference/float64.hpp"

// One thread: a team of Eigen's would hang in a forked child and change with the caller's settings.
#define EIGEN_DONT_PARALLELIZE
// Eigen keeps blocks of up to 128 KB on the stack; threads of the caller may not have that much.
#define EIGEN_STACK_ALLOCATION_LIMIT 4096
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/float_environment.hpp"
#include "reference/short_float.hpp"

namespace qattn::reference {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;

// Rows [begin, begin + count) of one head of a tensor, as integers in float64.
Matrix load(const core::InputRef& tensor, std::int64_t batch, std::int64_t head, std::int64_t begin,
            std::int64_t count, std::int64_t head_dim) {
  using Bytes = Eigen::Matrix<std::int8_t, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Bytes, 0, Eigen::OuterStride<>> rows(
      tensor.row(batch, begin, head), count, head_dim, Eigen::OuterStride<>(tensor.strides.seq));
  return rows.cast<double>();
}

void store(const core::OutputRef& out, std::int64_t b, std::int64_t i, std::int64_t h,
           const Vector& o) {
  if (out.dtype == DataType::float32) {
    Eigen::Map<Eigen::VectorXf>(out.row(b, i, h), o.size()) = o.cast<float>();
    return;
  }
  auto* row = out.row<std::uint16_t>(b, i, h);
  for (Eigen::Index d = 0; d < o.size(); ++d) {
    row[d] = out.dtype == DataType::float16 ? float16_bits(o[d]) : bfloat16_bits(o[d]);
  }
}

// Writes the attention of query i, given its integer dot products with all keys.
void attend(const core::Problem& p, std::int64_t b, std::int64_t h, std::int64_t i,
            const Vector& dots, const Matrix& v, double factor, double v_scale) {
  const std::int64_t visible = p.visible_keys(i);
  float* const lse = p.lse_row(b, h);
  Vector o = Vector::Zero(p.head_dim);
  double log_sum = -std::numeric_limits<double>::infinity();
  if (visible > 0) {
    const Vector s = factor * dots.head(visible);
    const double maximum = s.maxCoeff<Eigen::PropagateNaN>();
    const Vector weights = (s.array() - maximum).exp();
    const double sum = weights.sum();
    o = v_scale * (v.topRows(visible).transpose() * weights) / sum;
    log_sum = maximum + std::log(sum);
  }
  store(p.out, b, i, h, o);
  if (lse != nullptr) lse[i] = static_cast<float>(log_sum);
}

}  // namespace

void run_float64(const core::Problem& p, const core::RunContext&) {
  const core::FloatEnvironment environment;
  // Queries at a time: the scores of a block against all keys are the largest temporary.
  constexpr std::int64_t kBlockQueries = 64;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      const std::int64_t h_kv = h / p.group_size();
      const Matrix k = load(p.k, b, h_kv, 0, p.seq_k, p.head_dim);
      const Matrix v = load(p.v, b, h_kv, 0, p.seq_k, p.head_dim);
      const bool any_key = p.seq_k > 0;
      const double factor = any_key ? p.score_factor(p.q.scale[h], p.k.scale[h_kv]) : 0.0;
      const double v_scale = any_key ? static_cast<double>(p.v.scale[h_kv]) : 0.0;
      for (std::int64_t begin = 0; begin < p.seq_q; begin += kBlockQueries) {
        const std::int64_t count = std::min(kBlockQueries, p.seq_q - begin);
        const Matrix q = load(p.q, b, h, begin, count, p.head_dim);
        const Matrix dots = q * k.transpose();
        for (std::int64_t r = 0; r < count; ++r) {
          attend(p, b, h, begin + r, dots.row(r), v, factor, v_scale);
        }
      }
    }
  }
}

}  // namespace qattn::reference
