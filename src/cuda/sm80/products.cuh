// The two matrix products of a warp and its 16 rows.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma_s8.cuh"
#include "cuda/sm80/probabilities.cuh"
#include "cuda/tile/accumulate.cuh"
#include "cuda/tile/layout.cuh"
#include "cuda/tile/quantize.cuh"

namespace qattn::cuda::sm80 {

/// Bits that integer sums of the thread's rows start with, as an operand of mma: see
/// tile::kScoreBase.
struct Base {
  std::int32_t bits[4];

  __device__ Base(bool negative0, bool negative1)
      : bits{tile::score_base_bits(negative0), tile::score_base_bits(negative0),
             tile::score_base_bits(negative1), tile::score_base_bits(negative1)} {
    // Opaque, so that the four are kept and not made anew at every use.
    asm volatile("" : "+r"(bits[0]), "+r"(bits[1]), "+r"(bits[2]), "+r"(bits[3]));
  }
};

/// Scores of the warp's rows of the q tile, at shared address `q_rows`, with 8 * kTiles keys.
/// kUnroll steps of 32 columns at a time: operands that are loaded ahead take registers.
template <int kHeadDim, int kUnroll, int kTiles>
__device__ __forceinline__ void multiply_keys(ScoreTiles<kTiles>& s, std::uint32_t q_rows,
                                              std::uint32_t k_rows, const Base& base) {
  using Layout = tile::Layout<kHeadDim>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  // Matrices of q: rows 0-7 and 8-15 of chunk 0, then of chunk 1. Of k: chunks 0 and 1 of keys 0-7,
  // then of keys 8-15.
  const std::uint32_t q_lane = q_rows + Layout::offset(lane % 16, lane / 16);
  const std::uint32_t k_lane = k_rows + Layout::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = base.bits[i];
  }
#pragma unroll kUnroll
  for (int step = 0; step < kHeadDim / 32; ++step) {
    std::uint32_t q[4];
    ptx::ldmatrix_x4(q, Layout::advance(q_lane, 2 * step));
    const std::uint32_t k_step = Layout::advance(k_lane, 2 * step);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      std::uint32_t k[4];
      ptx::ldmatrix_x4(k, k_step + n * 8 * kHeadDim);
      ptx::mma_m16n8k32_s8_s8(s[n], q, k[0], k[1], s[n]);
      ptx::mma_m16n8k32_s8_s8(s[n + 1], q, k[2], k[3], s[n + 1]);
    }
  }
}

/// Makes the scores of keys that a row does not see -infinity. `limit[row]` is the number of keys
/// that it sees, counted from the first of these.
template <int kTiles>
__device__ __forceinline__ void mask_scores(ScoreTiles<kTiles>& s, const int (&limit)[2]) {
  const int lane_key = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int entry = 0; entry < 4; ++entry) {
      const int key = 8 * n + lane_key + entry % 2;
      if (key >= limit[entry / 2]) s[n][entry] = __float_as_int(-INFINITY);
    }
  }
}

/// Largest scores of the thread's rows. As integers, three at a time, where no row of the warp has
/// a negative factor: there the bits are in order.
template <bool kNegative, int kTiles>
__device__ __forceinline__ void row_maxima(float (&largest)[2], const ScoreTiles<kTiles>& s) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    if constexpr (kNegative) {
      largest[row] = -INFINITY;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        largest[row] = fmaxf(
            largest[row], fmaxf(__int_as_float(s[n][2 * row]), __int_as_float(s[n][2 * row + 1])));
      }
    } else {
      // Two chains, for latency.
      std::int32_t even = max(s[0][2 * row], s[0][2 * row + 1]);
      std::int32_t odd = max(s[1][2 * row], s[1][2 * row + 1]);
#pragma unroll
      for (int n = 2; n < kTiles; n += 2) {
        even = __vimax3_s32(even, s[n][2 * row], s[n][2 * row + 1]);
        odd = __vimax3_s32(odd, s[n + 1][2 * row], s[n + 1][2 * row + 1]);
      }
      largest[row] = __int_as_float(max(even, odd));
    }
    // The four lanes of a quad share a row.
    largest[row] = fmaxf(largest[row], __shfl_xor_sync(0xFFFFFFFFU, largest[row], 1));
    largest[row] = fmaxf(largest[row], __shfl_xor_sync(0xFFFFFFFFU, largest[row], 2));
  }
}

/// out = out + weight * (256 * high + low) * V, or with one plane weight * high * V. V lies
/// transposed (KvStream). Sums stay below 65280 * 128 * 128 < 2^30.
template <int kPlanes, int kHeadDim>
__device__ __forceinline__ void multiply_values(tile::Output<kHeadDim>& out,
                                                const tile::Plane& high, const tile::Plane& low,
                                                std::uint32_t v_tile, const float (&weight)[2]) {
  using Layout = tile::Layout<kHeadDim>;
  const std::uint32_t v_lane = v_tile + Layout::offset(static_cast<int>(threadIdx.x % 32), 0);
#pragma unroll
  for (int block = 0; block < tile::Output<kHeadDim>::kBlocks; ++block) {
    std::int32_t sum_high[2][4] = {};  // of even columns, of odd columns
    std::int32_t sum_low[2][4] = {};
#pragma unroll
    for (int step = 0; step < tile::Plane::kSteps; ++step) {
      std::uint32_t v[4];
      ptx::ldmatrix_x4(v, Layout::advance(v_lane, block) + step * 32 * kHeadDim);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        ptx::mma_m16n8k32_u8_s8(sum_high[odd], high.a + 4 * step, v[2 * odd], v[2 * odd + 1]);
        if constexpr (kPlanes == 2) {
          ptx::mma_m16n8k32_u8_s8(sum_low[odd], low.a + 4 * step, v[2 * odd], v[2 * odd + 1]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      // Column 4t + c of row r comes from accumulator 2r + c / 2 of the even or odd columns.
      const int row = i / 4;
      const int column = i % 4;
      const int entry = 2 * row + column / 2;
      std::int32_t sum = sum_high[column % 2][entry];
      if constexpr (kPlanes == 2) sum = 256 * sum + sum_low[column % 2][entry];
      float& value = out.value[block][row][column];
      value = fmaf(static_cast<float>(sum), weight[row], value);
    }
  }
}

}  // namespace qattn::cuda::sm80
