// Step::merge: joins the states of the chunks, in ascending order, and stores the rows. Lanes are
// columns.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/tile/row_block.hpp"
#include "cpu/tile/store.hpp"
#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

// One row, repeated in all lanes.
template <class LanesType>
struct RowOperands {
  using Lanes = LanesType;
  static constexpr int kRowVectors = 1;
  static constexpr int kBlockRows = Lanes::kLanes;
};

// What finish_row() wants to know, of one row.
struct MergedRow {
  const std::int64_t* query;
  const std::int64_t* head;
  const std::int64_t* visible;
  const float* finite;
};

// The states of row `row` become that of chunk 0, in place.
template <class Lanes>
inline void merge_row(const Partials& partials, std::int64_t pair, std::int64_t row,
                      const float* factor) {
  using Operands = RowOperands<Lanes>;
  float* total = partials.state(pair, 0, row);
  alignas(kScratchAlignment) float maximum[Lanes::kLanes];
  alignas(kScratchAlignment) float sum[Lanes::kLanes];
  alignas(kScratchAlignment) float later_maximum[Lanes::kLanes];
  Lanes::store(maximum, Lanes::splat(total[Partials::kMaximum]));
  Lanes::store(sum, Lanes::splat(total[Partials::kSum]));
  for (std::int64_t chunk = 1; chunk < partials.chunks; ++chunk) {
    const float* later = partials.state(pair, chunk, row);
    Lanes::store(later_maximum, Lanes::splat(later[Partials::kMaximum]));
    const auto rescale = update<Operands>(maximum, later_maximum, factor);
    const typename Lanes::Floats arriving[1] = {Lanes::splat(later[Partials::kSum])};
    accumulate_sum<Operands>(sum, arriving, rescale);
    for (std::int64_t d = 0; d < partials.columns; d += Lanes::kLanes) {
      float* output = total + Partials::kOutput + d;
      Lanes::store(output,
                   Lanes::fma(Lanes::load(later + Partials::kOutput + d), rescale.new_weight[0],
                              Lanes::load(output) * rescale.old_weight[0]));
    }
  }
  total[Partials::kMaximum] = maximum[0];
  total[Partials::kSum] = sum[0];
}

template <class Lanes>
inline void normalize_row(float* total, std::int64_t columns, float v_scale) {
  // A row without visible keys has sum 0; it is written apart.
  const auto sum = Lanes::max(Lanes::splat(total[Partials::kSum]), Lanes::splat(1.0F));
  const auto inverse = Lanes::splat(1.0F) / sum;
  for (std::int64_t d = 0; d < columns; d += Lanes::kLanes) {
    float* output = total + Partials::kOutput + d;
    Lanes::store(output, (Lanes::load(output) * inverse) * Lanes::splat(v_scale));
  }
}

template <class Lanes>
inline void merge_chunks(const Work& work) {
  const core::Problem& problem = *work.problem;
  const std::int64_t group_size = problem.group_size();
  const std::int64_t pair = work.batch * problem.heads_kv + work.head_kv;
  for (std::int64_t row = work.row_begin; row < work.row_end; ++row) {
    const std::int64_t query = row / group_size;
    const std::int64_t head = work.head_kv * group_size + row % group_size;
    const std::int64_t visible = problem.visible_keys(query);
    const ScoreFactor c = score_factor(problem, head, work.head_kv);
    alignas(kScratchAlignment) float factor[Lanes::kLanes];
    Lanes::store(factor, Lanes::splat(c.exponent));
    merge_row<Lanes>(work.partials, pair, row, factor);
    float* total = work.partials.state(pair, 0, row);
    normalize_row<Lanes>(total, work.partials.columns, problem.v.scale[work.head_kv]);
    std::memcpy(problem.out.row(work.batch, query, head), total + Partials::kOutput,
                static_cast<std::size_t>(problem.head_dim) * sizeof(float));
    const float finite = c.finite ? 1.0F : 0.0F;
    const MergedRow merged{&query, &head, &visible, &finite};
    finish_row(work, merged, 0, total[Partials::kMaximum], total[Partials::kSum]);
  }
}

}  // namespace
}  // namespace qattn::cpu
