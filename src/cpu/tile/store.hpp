// Score factors of the rows and the end of a task: normalised rows and lse to the caller's memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/tile/numerics.hpp"
#include "cpu/tile/panel_operands.hpp"
#include "cpu/tile/task_memory.hpp"
#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

// The factor that turns the integer scores of a row into exponents.
struct ScoreFactor {
  double natural;  // |c|: natural log per unit of score
  float exponent;  // |c| * log2(e) as float, clamped to the largest
  bool negative;   // c < 0
  bool finite;     // otherwise the row is NaN, and the fields above are those of c = 0
};

inline ScoreFactor score_factor(const core::Problem& problem, std::int64_t head_q,
                                std::int64_t head_kv) {
  if (problem.seq_k == 0) return {0, 0, false, true};  // k may have no scales then
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLargest = 0x1.fffffep+127;
  const double c = problem.score_factor(problem.q.scale[head_q], problem.k.scale[head_kv]);
  if (!(__builtin_fabs(c) <= kLargest)) return {0, 0, false, false};
  const double natural = __builtin_fabs(c);
  const double exponent = natural * kLog2E;
  return {natural, static_cast<float>(exponent < kLargest ? exponent : kLargest), c < 0, true};
}

// output * (1 / sum) * v_scale, in place.
template <class Operands>
inline void normalize(float* output, const float* sum, float v_scale, std::int64_t head_dim) {
  using Lanes = typename Operands::Lanes;
  for (int row = 0; row < Operands::kBlockRows; row += Lanes::kLanes) {
    // Rows without visible keys have sum 0; they are written apart.
    const auto total = Lanes::max(Lanes::load(sum + row), Lanes::splat(1.0F));
    const auto inverse = Lanes::splat(1.0F) / total;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      float* o = output + d * Operands::kBlockRows + row;
      Lanes::store(o, (Lanes::load(o) * inverse) * Lanes::splat(v_scale));
    }
  }
}

// One row of the caller's from a column of [d][row].
inline void store_row(float* to, const float* from, int stride, std::int64_t head_dim) {
  for (std::int64_t d = 0; d < head_dim; ++d) to[d] = from[d * stride];
}

// Four rows of the caller's from four columns of [d][row].
inline void store_four_rows(float* const (&to)[kSquare], const float* from, int stride,
                            std::int64_t head_dim) {
  std::int64_t d = 0;
  for (; d + kSquare <= head_dim; d += kSquare, from += kSquare * stride) {
    auto a = load_bytes<Dwords4>(from);
    auto b = load_bytes<Dwords4>(from + stride);
    auto c = load_bytes<Dwords4>(from + 2 * stride);
    auto e = load_bytes<Dwords4>(from + 3 * stride);
    transpose(a, b, c, e);
    std::memcpy(to[0] + d, &a, sizeof a);
    std::memcpy(to[1] + d, &b, sizeof b);
    std::memcpy(to[2] + d, &c, sizeof c);
    std::memcpy(to[3] + d, &e, sizeof e);
  }
  for (int i = 0; i < kSquare; ++i) store_row(to[i] + d, from + i, stride, head_dim - d);
}

inline void fill_row(float* to, float value, std::int64_t head_dim) {
  for (std::int64_t d = 0; d < head_dim; ++d) to[d] = value;
}

inline float log_sum_exp(const ScoreFactor& c, float maximum, float sum) {
  const double score = static_cast<double>(maximum) - static_cast<double>(kInteger);
  return static_cast<float>(c.natural * score +
                            std::log(static_cast<double>(sum) / static_cast<double>(kUnit)));
}

// lse, and the rows that normalize() cannot give: without visible keys, or with a score factor that
// is not finite.
template <class Memory>
inline void finish_row(const Work& work, const Memory& memory, std::int64_t row) {
  const core::Problem& problem = *work.problem;
  const std::int64_t query = memory.query[row];
  const std::int64_t head = memory.head[row];
  const bool empty = memory.visible[row] == 0;
  const bool finite = memory.finite[row] != 0;
  if (empty || !finite) {
    fill_row(problem.out.row(work.batch, query, head), empty ? 0.0F : __builtin_nanf(""),
             problem.head_dim);
  }
  float* lse = problem.lse_row(work.batch, head);
  if (lse == nullptr) return;
  if (empty) {
    lse[query] = -__builtin_inff();
  } else if (!finite) {
    lse[query] = __builtin_nanf("");
  } else {
    lse[query] = log_sum_exp(score_factor(problem, head, work.head_kv), memory.total.maximum[row],
                             memory.total.sum[row]);
  }
}

// Writes the rows of the block that starts at row `first` of the task.
template <class Operands, class Memory>
inline void store_rows(const Work& work, const Memory& memory, std::int64_t first) {
  const core::Problem& problem = *work.problem;
  const std::int64_t left = work.row_end - work.row_begin - first;
  const std::int64_t count = left < Operands::kBlockRows ? left : Operands::kBlockRows;
  float* output = memory.total.output + first * padded_columns(problem.head_dim);
  const float v_scale = problem.seq_k == 0 ? 0.0F : problem.v.scale[work.head_kv];
  normalize<Operands>(output, memory.total.sum + first, v_scale, problem.head_dim);
  const auto row_of_output = [&](std::int64_t row) {
    return problem.out.row(work.batch, memory.query[first + row], memory.head[first + row]);
  };
  std::int64_t i = 0;
  for (; i + kSquare <= count; i += kSquare) {
    float* const to[kSquare] = {row_of_output(i), row_of_output(i + 1), row_of_output(i + 2),
                                row_of_output(i + 3)};
    store_four_rows(to, output + i, Operands::kBlockRows, problem.head_dim);
  }
  for (; i < count; ++i) {
    store_row(row_of_output(i), output + i, Operands::kBlockRows, problem.head_dim);
  }
  for (i = 0; i < count; ++i) finish_row(work, memory, first + i);
}

}  // namespace
}  // namespace qattn::cpu
