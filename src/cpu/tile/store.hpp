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
inline void finish_row(const Work& work, const Memory& memory, std::int64_t row, float maximum,
                       float sum) {
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
    lse[query] = log_sum_exp(score_factor(problem, head, work.head_kv), maximum, sum);
  }
}

// Stores a row block, output * (1 / sum) * v_scale, in small parts between other work: a store
// waits for its cache line, and only some 100 can wait before the processor does.
template <class Lanes, class Memory>
class BlockStore {
 public:
  BlockStore(const Work& work, const Memory& memory) : work_(work), memory_(memory) {}

  // Takes rows [first, first + block_rows) of the task, as many as there are. `state` stays as it
  // is until the block is stored.
  void begin(std::int64_t first, const SoftmaxState& state, std::int64_t block_rows) {
    const core::Problem& problem = *work_.problem;
    const std::int64_t left = work_.row_end - work_.row_begin - first;
    first_ = first;
    state_ = state;
    block_rows_ = block_rows;
    rows_ = left < block_rows ? left : block_rows;
    head_dim_ = problem.head_dim;
    v_scale_ = problem.v.scale[work_.head_kv];
    for (std::int64_t i = 0; i < rows_; ++i) {
      to_[i] = problem.out.row(work_.batch, memory_.query[first + i], memory_.head[first + i]);
    }
    for (std::int64_t i = 0; i < block_rows; i += kSide) {
      // Rows without visible keys have sum 0; they are written apart.
      const auto total = Lanes::max(Lanes::load(state.sum + i), Lanes::splat(1.0F));
      Lanes::store(inverse_ + i, Lanes::splat(1.0F) / total);
    }
    columns_ = (head_dim_ + kSide - 1) / kSide;
    squares_ = (rows_ + kSide - 1) / kSide * columns_;
    next_ = 0;
  }

  // Stores the next part of the block, if there is one.
  void step() {
    constexpr std::int64_t kParts = 8;
    const std::int64_t part = (squares_ + kParts - 1) / kParts;
    for (std::int64_t end = next_ + part; next_ < squares_ && next_ < end; ++next_) store_square();
  }

  // Stores what is left.
  void finish() {
    if (squares_ == 0) return;
    for (; next_ < squares_; ++next_) store_square();
    for (std::int64_t i = 0; i < rows_; ++i) {
      finish_row(work_, memory_, first_ + i, state_.maximum[i], state_.sum[i]);
    }
    squares_ = 0;
  }

 private:
  static constexpr std::int64_t kSide = Lanes::kLanes;

  // As many columns as a vector has rows, transposed on their way.
  void store_square() {
    const std::int64_t row = next_ / columns_ * kSide;
    const std::int64_t d = next_ % columns_ * kSide;
    const auto inverse = Lanes::load(inverse_ + row);
    typename Lanes::Floats square[kSide];
    for (std::int64_t i = 0; i < kSide; ++i) {
      const auto sum = Lanes::load(state_.output + (d + i) * block_rows_ + row);
      square[i] = (sum * inverse) * Lanes::splat(v_scale_);
    }
    Lanes::transpose(square);
    const std::int64_t count = rows_ - row < kSide ? rows_ - row : kSide;
    const std::int64_t width = head_dim_ - d;
    for (std::int64_t i = 0; i < count; ++i) {
      if (width >= kSide) {
        Lanes::store_unaligned(to_[row + i] + d, square[i]);
      } else {
        alignas(kScratchAlignment) float last[kSide];
        Lanes::store(last, square[i]);
        std::memcpy(to_[row + i] + d, last, static_cast<std::size_t>(width) * sizeof(float));
      }
    }
  }

  const Work& work_;
  const Memory& memory_;
  std::int64_t first_ = 0;
  SoftmaxState state_{};
  std::int64_t block_rows_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t head_dim_ = 0;
  std::int64_t columns_ = 0;  // of squares
  std::int64_t squares_ = 0;  // 0: nothing to store
  std::int64_t next_ = 0;
  float v_scale_ = 0;
  float* to_[kMaxBlockRows];
  alignas(kScratchAlignment) float inverse_[kMaxBlockRows];
};

}  // namespace
}  // namespace qattn::cpu
