// A warp's quarter of a group of keys: scores, maxima, probabilities, sums.
//
// The keys of a group are dealt to its four warps in tiles of eight: warp w has tiles w, w + 4,
// w + 8 and w + 12, local tiles 0 to 3. So the warps share the work evenly however few keys there
// are.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/problem.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma_s8.cuh"
#include "cuda/ptx/st_shared.cuh"
#include "cuda/tile/accumulate.cuh"
#include "cuda/tile/layout.cuh"
#include "cuda/tile/quantize.cuh"
#include "cuda/tile/scheduler.cuh"
#include "cuda/tile/scores.cuh"
#include "cuda/tile/softmax.cuh"
#include "cuda/tiny/policy.hpp"

namespace qattn::cuda::tiny {

inline constexpr int kTiles = 4;  // of a warp

/// Key in the group of row `row` of a warp's tiles.
__device__ __forceinline__ int key_in_group(int warp, int row) {
  return 32 * (row / 8) + 8 * warp + row % 8;
}

/// What the warps of a block tell each other, for each row.
struct Exchange {
  float maximum[kTinyRows][4];
  std::int32_t sum[kTinyRows][4];  // of probabilities
  // What share_factors() says of the rows.
  double natural[kTinyRows];
  float exponent[kTinyRows];
  std::int32_t finite[kTinyRows];
};
static_assert(sizeof(Exchange) <= TinyPolicy<32>::kExchangeBytes);

/// Factors of the block's rows, by a warp that does nothing else: their arithmetic in float64 takes
/// as long as loads and scores, and no warp that computes those has to wait for it.
__device__ __forceinline__ void share_factors(const AttentionParams& params,
                                              const tile::BlockWork& work, Exchange& exchange,
                                              int lane) {
  if (lane >= kTinyRows) return;
  const std::uint32_t head =
      work.head_kv * work.group_size + static_cast<std::uint32_t>(work.place(lane).head_in_group);
  const tile::ScoreFactor factor =
      tile::score_factor(params.softmax_scale, params.q.scale[head], params.k.scale[work.head_kv]);
  exchange.natural[lane] = factor.natural;
  exchange.exponent[lane] = tile::exponent_of(factor);
  exchange.finite[lane] = factor.finite ? 1 : 0;
}

__device__ __forceinline__ float largest_of(const float (&parts)[4]) {
  const float4 part = *reinterpret_cast<const float4*>(parts);
  return fmaxf(fmaxf(part.x, part.y), fmaxf(part.z, part.w));
}

__device__ __forceinline__ std::int32_t sum_of(const std::int32_t (&parts)[4]) {
  const int4 part = *reinterpret_cast<const int4*>(parts);
  return (part.x + part.y) + (part.z + part.w);
}

/// Scores of the block's rows with the warp's keys, as tile::Scores has them, in local tiles.
template <int kHeadDim>
__device__ __forceinline__ void scores(tile::Scores& s, std::uint32_t q_tile, std::uint32_t k_tile,
                                       int lane, const std::int32_t (&base)[2]) {
  using Layout = tile::Layout<kHeadDim>;
  const std::uint32_t q_lane = q_tile + Layout::offset(lane % 16, lane / 16);
  const std::uint32_t k_lane = k_tile + Layout::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const std::int32_t start[4] = {base[0], base[0], base[1], base[1]};
#pragma unroll
  for (int step = 0; step < kHeadDim / 32; ++step) {
    std::uint32_t q[4];
    ptx::ldmatrix_x4(q, Layout::advance(q_lane, 2 * step));
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      std::uint32_t k[4];
      ptx::ldmatrix_x4(k, Layout::advance(k_lane, 2 * step) + n * 8 * kHeadDim);
      ptx::mma_m16n8k32_s8_s8(s.bits[n], q, k[0], k[1], step == 0 ? start : s.bits[n]);
      ptx::mma_m16n8k32_s8_s8(s.bits[n + 1], q, k[2], k[3], step == 0 ? start : s.bits[n + 1]);
    }
  }
}

/// Makes the scores of keys that a row does not see -infinity; `limit` counts from the group's
/// first key. Tiles that were not loaded lie behind every limit.
__device__ __forceinline__ void mask_scores(tile::Scores& s, int warp, int lane,
                                            const int (&limit)[2]) {
  const int first_key = 8 * warp + 2 * (lane % 4);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int entry = 0; entry < 4; ++entry) {
      if (32 * n + entry % 2 >= limit[entry / 2] - first_key) {
        s.bits[n][entry] = __float_as_int(-INFINITY);
      }
    }
  }
}

/// Tells the other warps of the group the largest score of each row with this warp's keys.
__device__ __forceinline__ void share_maxima(const tile::Scores& s, Exchange& exchange, int warp,
                                             int lane) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float largest = -INFINITY;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      largest = fmaxf(largest, fmaxf(s.at(n, 2 * row), s.at(n, 2 * row + 1)));
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 2));
    if (lane % 4 == 0) exchange.maximum[lane / 4 + 8 * row][warp] = largest;
  }
}

/// Largest score of each of the thread's rows over all keys of the group; 0 where a row sees none.
__device__ __forceinline__ void group_maxima(float (&maximum)[2], const Exchange& exchange,
                                             int lane) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const float largest = largest_of(exchange.maximum[lane / 4 + 8 * row]);
    maximum[row] = largest == -INFINITY ? 0.0F : largest;
  }
}

/// Probabilities of the warp's keys as two planes of bytes, one A operand each.
struct Planes {
  std::uint32_t high[4] = {0, 0, 0, 0};
  std::uint32_t low[4] = {0, 0, 0, 0};
};

/// Sums over the warp's keys, of the thread's two rows: a product with ones.
__device__ __forceinline__ void sum_of_plane(std::int32_t (&sums)[2],
                                             const std::uint32_t (&plane)[4]) {
  const std::uint32_t ones = 0x01010101U;
  std::int32_t d[4] = {0, 0, 0, 0};
  ptx::mma_m16n8k32_u8_s8(d, plane, ones, ones);
  sums[0] = d[0];
  sums[1] = d[2];
}

/// 16-bit probabilities. Tiles are quantised in pairs; those from `pairs` on are hidden from every
/// row and stay 0.
__device__ __forceinline__ void quantize16(Planes& planes, const tile::Scores& s,
                                           const float (&maximum)[2], const float (&exponent)[2],
                                           int pairs) {
#pragma unroll
  for (int pair = 0; pair < kTiles / 2; ++pair) {
    if (pair >= pairs) break;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const tile::Quad q = tile::quad(2 * pair + row);
      tile::quantize16(planes.high[q.index], planes.low[q.index], s, q, maximum[row],
                       exponent[row]);
    }
  }
}

/// Writes the warp's sums of probabilities.
__device__ __forceinline__ void store_sums(const Planes& planes, Exchange& exchange, int warp,
                                           int lane) {
  std::int32_t high[2];
  std::int32_t low[2];
  sum_of_plane(high, planes.high);
  sum_of_plane(low, planes.low);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    if (lane % 4 == 0) exchange.sum[lane / 4 + 8 * row][warp] = 256 * high[row] + low[row];
  }
}

/// Writes the warp's sums of probabilities times V, of kColumns columns from `first_block` * 16 on:
/// to `sums`, kSumStride integers a row.
template <int kHeadDim>
__device__ __forceinline__ void store_products(std::uint32_t sums, const Planes& planes,
                                               std::uint32_t v_tile, int first_block, int lane) {
  using Policy = TinyPolicy<kHeadDim>;
  using Layout = tile::Layout<kHeadDim>;
  const std::uint32_t v_lane = v_tile + Layout::offset(lane, 0);
  const std::uint32_t to = sums + 4 * (lane / 4 * Policy::kSumStride + 4 * (lane % 4));
#pragma unroll
  for (int block = 0; block < Policy::kColumns / 16; ++block) {
    const tile::VOperand v = tile::load_v(Layout::advance(v_lane, first_block + block));
    std::int32_t high[2][4] = {};
    std::int32_t low[2][4] = {};
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      ptx::mma_m16n8k32_u8_s8(high[odd], planes.high, v.b[odd][0], v.b[odd][1]);
      ptx::mma_m16n8k32_u8_s8(low[odd], planes.low, v.b[odd][0], v.b[odd][1]);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      // Column 4t + c of row r comes from accumulator 2r + c / 2 of the even or odd columns.
      std::uint32_t words[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int entry = 2 * row + c / 2;
        words[c] = static_cast<std::uint32_t>(256 * high[c % 2][entry] + low[c % 2][entry]);
      }
      ptx::st_shared_16(to + 4 * (8 * row * Policy::kSumStride + 16 * block), words);
    }
  }
}

}  // namespace qattn::cuda::tiny
