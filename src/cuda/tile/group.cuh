// A group of keys from scores to the running output.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/problem.hpp"
#include "cuda/tile/accumulate.cuh"
#include "cuda/tile/quantize.cuh"
#include "cuda/tile/softmax.cuh"

namespace qattn::cuda::tile {

/// How many planes a product takes.
template <int kCount>
using Planes = std::integral_constant<int, kCount>;

/// Quantises the scores of a group and adds it to the state and the output. `first` says that it is
/// the group of key 0, `visible[row]` how many of its keys a row sees. `any(b)` is true for all
/// threads that multiply together if b is for one; `accumulate(planes, high, low, group)` adds the
/// products of one or both planes with V to the output.
template <Precision kPrecision, int kHeadDim, typename Any, typename Accumulate>
__device__ __forceinline__ void add_group(Softmax& state, Output<kHeadDim>& out, const Scores& s,
                                          bool first, const int (&visible)[2], Any any,
                                          Accumulate accumulate) {
  const GroupScale group = state.update(s);
  out.rescale(group.rescale);
  Plane high;
  Plane low;
  std::int32_t sums[2];
  bool both_planes = true;
  if constexpr (kPrecision == Precision::high) {
    quantize_high(high, low, s, state, group);
  } else {
    quantize_fast(high, s, state, group);
    row_sums(sums, high);
    // Bytes lose the keys that are more than ln 510 below the maximum. Where they may be many (the
    // bytes sum to less than 8 per key), and at the start, where models put their sink, the row
    // gets 16 bits. The choice is the row's own; the threads only skip what none of their rows
    // needs.
    bool refine_row[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) refine_row[row] = first || sums[row] < 8 * visible[row];
    both_planes = any(refine_row[0] || refine_row[1]);
    if (both_planes) refine(high, low, refine_row, s, state, group);
  }
  if (both_planes) {
    std::int32_t low_sums[2];
    row_sums(sums, high);
    row_sums(low_sums, low);
#pragma unroll
    for (int row = 0; row < 2; ++row) sums[row] = 256 * sums[row] + low_sums[row];
    state.add(sums, group);
    accumulate(Planes<2>{}, high, low, group);
  } else {
#pragma unroll
    for (int row = 0; row < 2; ++row) sums[row] *= 256;
    state.add(sums, group);
    accumulate(Planes<1>{}, high, low, group);
  }
}

}  // namespace qattn::cuda::tile
