// The second product of a SmallTask, finished in registers: its lanes are columns.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/tile/numerics.hpp"
#include "cpu/tile/small_lanes.hpp"
#include "cpu/tile/small_memory.hpp"

namespace qattn::cpu {
namespace {

// Stores kRows rows; kStride rows of probabilities lie side by side. `lane_of(i)` is the lane of
// the i-th row in the block (the last sees most keys), and to[i] its place, of which `count` exist.
template <int kRows, int kStride>
class SmallStore {
 public:
  using Lanes = SmallLanes16;
  using Floats = Lanes::Floats;
  using Ints = Lanes::Ints;

  SmallStore(const SmallMemory& memory, const SmallBlock& block, std::int64_t head_dim,
             float v_scale)
      : memory_(memory), block_(block), head_dim_(head_dim), v_scale_(Lanes::splat(v_scale)) {}

  // `low` is null where all probabilities are bytes.
  template <bool kWords, class LaneOf>
  [[gnu::always_inline]] void run(const std::int32_t* high, const std::int32_t* low,
                                  const float* new_weight, float* const* to, int count,
                                  const LaneOf& lane_of) const {
    const int quads = (block_.visible[lane_of(kRows - 1)] + 3) / 4;
    const int half_quads = (block_.visible[lane_of(kRows / 2 - 1)] + 3) / 4;
    for (std::int64_t d = 0; d < head_dim_; d += kSmallColumns) {
      const std::int8_t* values = memory_.values + d * kGroupKeys;
      Sum sums[kRows][2];
#pragma GCC unroll 8
      for (auto& sum : sums) sum[0] = sum[1] = Lanes::hold(Lanes::splat(0));
      add_products(sums, high, values, quads, half_quads);
      if constexpr (kWords) {
#pragma GCC unroll 8
        for (auto& sum : sums) {
          sum[0] <<= 8;
          sum[1] <<= 8;
        }
        add_products(sums, low, values, quads, half_quads);
      }
      const Floats first[2] = {Lanes::load(memory_.first_value + d),
                               Lanes::load(memory_.first_value + d + 16)};
      const __mmask16 columns[2] = {lanes_below(head_dim_ - d), lanes_below(head_dim_ - d - 16)};
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        if (i >= count) break;
        const int lane = lane_of(i);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const Floats output = Lanes::fma(Lanes::to_floats(Lanes::value(sums[i][half])),
                                           Lanes::splat(new_weight[lane]),
                                           first[half] * Lanes::splat(memory_.old_weight[lane]));
          const Floats scaled = (output * Lanes::splat(memory_.inverse[lane])) * v_scale_;
          _mm512_mask_storeu_ps(to[i] + d + 16 * half, columns[half], scaled);
        }
      }
      // Rows without a visible key come first.
      for (int i = 0; i < count && i < kRows && block_.visible[lane_of(i)] == 0; ++i) {
        _mm512_mask_storeu_ps(to[i] + d, columns[0], Lanes::splat(0.0F));
        _mm512_mask_storeu_ps(to[i] + d + 16, columns[1], Lanes::splat(0.0F));
      }
    }
  }

 private:
  using Sum = Lanes::Sum;

  // sums[i][half] += probabilities of row i by 16 columns of values. The first half of the rows
  // sees only `half_quads` of the keys.
  [[gnu::always_inline]] static void add_products(Sum (&sums)[kRows][2],
                                                  const std::int32_t* probabilities,
                                                  const std::int8_t* values, int quads,
                                                  int half_quads) {
    int quad = 0;
    for (; quad < half_quads; ++quad) add_quad<0>(sums, probabilities, values, quad);
    for (; quad < quads; ++quad) add_quad<kRows / 2>(sums, probabilities, values, quad);
  }

  template <int kFirst>  // of the rows
  [[gnu::always_inline]] static void add_quad(Sum (&sums)[kRows][2],
                                              const std::int32_t* probabilities,
                                              const std::int8_t* values, int quad) {
    const std::int8_t* from = values + quad * 4 * kSmallColumns;
    const Ints v[2] = {_mm512_load_si512(from), _mm512_load_si512(from + 64)};
#pragma GCC unroll 8
    for (int i = kFirst; i < kRows; ++i) {
      const Ints p = Lanes::splat(probabilities[quad * kStride + i]);
      sums[i][0] = Lanes::hold(Lanes::dot_quads(Lanes::value(sums[i][0]), p, v[0]));
      sums[i][1] = Lanes::hold(Lanes::dot_quads(Lanes::value(sums[i][1]), p, v[1]));
    }
  }

  const SmallMemory& memory_;
  const SmallBlock& block_;
  const std::int64_t head_dim_;
  const Floats v_scale_;
};

}  // namespace
}  // namespace qattn::cpu
