// Finished rows to global memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/ptx/cvt_x2.cuh"
#include "cuda/tile/accumulate.cuh"
#include "cuda/tile/scores.cuh"
#include "cuda/tile/softmax.cuh"

namespace qattn::cuda {

/// Where the elements from `elements` on lie.
__device__ __forceinline__ OutputPointer operator+(const OutputPointer& out,
                                                   std::int64_t elements) {
  const int shift = out.type == DataType::float32 ? 2 : 1;
  return {static_cast<std::byte*>(out.data) + (elements << shift), out.type};
}

namespace tile {

/// Factors that turn accumulators into an output row: value = (sum * inverse) * v_scale.
struct RowFinish {
  bool any_key;   // false: the row is 0
  float inverse;  // of the sum of probabilities; NaN where the score factor is not finite
  float v_scale;

  __device__ float value(float sum) const { return any_key ? sum * inverse * v_scale : 0.0F; }
};

/// The bits of two elements of a 16-bit type, the first one in the low half.
__device__ __forceinline__ std::uint32_t short_pair(float first, float second, DataType type) {
  return type == DataType::float16 ? ptx::cvt_f16x2(first, second) : ptx::cvt_bf16x2(first, second);
}

/// Neighbouring elements, as wide as a load or a store of a thread.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  T value[kCount];
};

template <int kCount>
__device__ __forceinline__ Vector<std::uint32_t, kCount / 2> short_pairs(
    const Vector<float, kCount>& columns, DataType type) {
  Vector<std::uint32_t, kCount / 2> pairs;
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    pairs.value[i / 2] = short_pair(columns.value[i], columns.value[i + 1], type);
  }
  return pairs;
}

/// Writes columns `first` to first + kCount - 1 of a row, those of them that it has; `first` is a
/// multiple of kCount and `aligned` says that the row is aligned to 4 elements.
template <int kCount>
__device__ __forceinline__ void store_columns(const OutputPointer& out, bool aligned, int head_dim,
                                              int first, const Vector<float, kCount>& columns) {
  const bool whole = aligned && first + kCount <= head_dim;
  if (out.type == DataType::float32) {
    float* to = static_cast<float*>(out.data) + first;
    if (whole) {
      *reinterpret_cast<Vector<float, kCount>*>(to) = columns;
      return;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (first + i < head_dim) to[i] = columns.value[i];
    }
    return;
  }
  std::uint16_t* to = static_cast<std::uint16_t*>(out.data) + first;
  if constexpr (kCount == 1) {
    if (first < head_dim) {
      *to = static_cast<std::uint16_t>(short_pair(columns.value[0], 0.0F, out.type));
    }
  } else {
    const Vector<std::uint32_t, kCount / 2> pairs = short_pairs(columns, out.type);
    if (whole) {
      *reinterpret_cast<Vector<std::uint32_t, kCount / 2>*>(to) = pairs;
      return;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const std::uint32_t pair = pairs.value[i / 2];
      if (first + i < head_dim) to[i] = static_cast<std::uint16_t>(pair >> (16 * (i % 2)));
    }
  }
}

/// Writes the columns of `row` that this thread holds. The usual row is code of its own, since a
/// block of rows runs it once: a branch for every column made it 20 KB to be fetched (cuda/sm90
/// with 1024 keys: 4 and 7 % of the time at `fast` and `high`).
template <int kHeadDim>
__device__ __forceinline__ void store_row(const OutputPointer& out, bool aligned, int head_dim,
                                          const Output<kHeadDim>& sums, int row,
                                          const RowFinish& finish) {
  const int lane_column = static_cast<int>(threadIdx.x % 4) * 4;
  const auto columns_of = [&](int block) {
    Vector<float, 4> columns;
#pragma unroll
    for (int i = 0; i < 4; ++i) columns.value[i] = finish.value(sums.value[block][row][i]);
    return columns;
  };
  constexpr int kBlocks = Output<kHeadDim>::kBlocks;
  if (!aligned || head_dim != kHeadDim) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      store_columns(out, aligned, head_dim, 16 * block + lane_column, columns_of(block));
    }
  } else if (out.type == DataType::float32) {
    auto* to = reinterpret_cast<Vector<float, 4>*>(static_cast<float*>(out.data) + lane_column);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) to[4 * block] = columns_of(block);
  } else {
    auto* to = reinterpret_cast<Vector<std::uint32_t, 2>*>(static_cast<std::uint16_t*>(out.data) +
                                                           lane_column);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      to[4 * block] = short_pairs(columns_of(block), out.type);
    }
  }
}

/// Natural-log sum of a row: factor * largest score + ln(sum).
__device__ __forceinline__ float log_sum(const ScoreFactor& factor, float max, float sum) {
  if (sum == 0.0F) return -INFINITY;
  if (!factor.finite) return NAN;
  const double base = factor.natural < 0 ? -kScoreBase : kScoreBase;
  // Scores is +-(base + s), so that max - base is s or -s: the one that |factor| belongs to.
  const double score = static_cast<double>(max) - base;
  return static_cast<float>(fabs(factor.natural) * score + static_cast<double>(logf(sum / kOne)));
}

}  // namespace tile
}  // namespace qattn::cuda
