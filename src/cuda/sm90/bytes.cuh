// Probabilities as planes of bytes and their products with V.
#pragma once

#include <cstdint>

#include "cuda/ptx/cvt_x2.cuh"
#include "cuda/ptx/prmt.cuh"
#include "cuda/ptx/wgmma_s8.cuh"
#include "cuda/sm90/scores.cuh"
#include "cuda/sm90/values.cuh"
#include "cuda/tile/accumulate.cuh"

namespace qattn::cuda::sm90 {

/// A plane of bytes for the thread's rows, A operands of m64nNk32. Step i covers keys 32 * i to 32
/// * i + 31 in an order of its own: logical column 4t + j (j < 4, t = lane % 4) is key 2t + j for j
/// < 2 and key 8 + 2t + j - 2 for the others, and columns 16 to 31 the same of the next 16 keys. So
/// scores become operands without leaving their thread; V follows the same order (values.cuh).
/// Entry i belongs to row i % 2.
template <int kKeys>
struct Bytes {
  static constexpr int kSteps = kKeys / 32;
  std::uint32_t a[4 * kSteps];
};

/// The four probabilities of entry i of a plane.
template <int kKeys>
__device__ __forceinline__ void gather(float (&p)[4], const Scores<kKeys>& s, int i) {
#pragma unroll
  for (int j = 0; j < 4; ++j) p[j] = s.probability(i / 2 * 2 + j / 2, 2 * (i % 2) + j % 2);
}

/// Probabilities of a tile as 16-bit integers, two a register: h[2 * i] and h[2 * i + 1] become
/// entry i of a plane.
template <int kKeys>
struct Shorts {
  std::uint32_t h[8 * Bytes<kKeys>::kSteps];
};

/// Probabilities p * 2^-24 with p <= 255.5 to integers. As float16 they are subnormal: their bits
/// are p, rounded to the nearest even.
template <int kKeys>
__device__ __forceinline__ void round_probabilities(Shorts<kKeys>& shorts, const Scores<kKeys>& s) {
#pragma unroll
  for (int i = 0; i < 4 * Bytes<kKeys>::kSteps; ++i) {
    float p[4];
    gather(p, s, i);
    shorts.h[2 * i] = ptx::cvt_f16x2(p[0], p[1]);
    shorts.h[2 * i + 1] = ptx::cvt_f16x2(p[2], p[3]);
  }
}

template <int kKeys>
__device__ __forceinline__ void pack_bytes(Bytes<kKeys>& plane, const Shorts<kKeys>& shorts) {
#pragma unroll
  for (int i = 0; i < 4 * Bytes<kKeys>::kSteps; ++i) {
    plane.a[i] = ptx::prmt(shorts.h[2 * i], shorts.h[2 * i + 1], 0x6420);
  }
}

/// Their sums over all keys of the tile, for the thread's two rows. A half of a register sums at
/// most 16 of them, 4080.
template <int kKeys>
__device__ __forceinline__ void sum_shorts(std::int32_t (&sums)[2], const Shorts<kKeys>& shorts) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    std::uint32_t even = 0;
    std::uint32_t odd = 0;
#pragma unroll
    for (int i = row; i < 4 * Bytes<kKeys>::kSteps; i += 2) {
      even += shorts.h[2 * i];
      odd += shorts.h[2 * i + 1];
    }
    even += odd;
    even = (even & 0xFFFFU) + (even >> 16);
    even += __shfl_xor_sync(0xFFFFFFFFU, even, 1);
    sums[row] = static_cast<std::int32_t>(even + __shfl_xor_sync(0xFFFFFFFFU, even, 2));
  }
}

/// Probabilities p < 2^16 to two planes. Adding 1.5 * 2^23 rounds to an integer, ties to even.
template <int kKeys>
__device__ __forceinline__ void pack_words(Bytes<kKeys>& high, Bytes<kKeys>& low,
                                           const Scores<kKeys>& s) {
#pragma unroll
  for (int i = 0; i < 4 * Bytes<kKeys>::kSteps; ++i) {
    float p[4];
    gather(p, s, i);
    std::uint32_t bits[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) bits[j] = __float_as_uint(p[j] + 12582912.0F);
    const std::uint32_t p01 = ptx::prmt(bits[0], bits[1], 0x5410);
    const std::uint32_t p23 = ptx::prmt(bits[2], bits[3], 0x5410);
    low.a[i] = ptx::prmt(p01, p23, 0x6420);
    high.a[i] = ptx::prmt(p01, p23, 0x7531);
  }
}

/// Sums of a plane over all keys of the tile, for the thread's two rows.
template <int kKeys>
__device__ __forceinline__ void sum_bytes(std::int32_t (&sums)[2], const Bytes<kKeys>& plane) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    std::uint32_t sum = 0;
#pragma unroll
    for (int i = row; i < 4 * Bytes<kKeys>::kSteps; i += 2) {
      sum = __dp4a(plane.a[i], 0x01010101U, sum);
    }
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
    sums[row] = static_cast<std::int32_t>(sum);
  }
}

/// Starts sum = plane * V for as many columns as `sum` has, from `first_column` on. The sums stay
/// below 255 * 128 * 128 < 2^22. The caller fences and commits.
template <int kHeadDim, int kKeys, int kTiles>
__device__ __forceinline__ void multiply_values(std::int32_t (&sum)[kTiles][4],
                                                const Bytes<kKeys>& plane, std::uint32_t v_tile,
                                                int first_column) {
#pragma unroll
  for (int step = 0; step < Bytes<kKeys>::kSteps; ++step) {
    ptx::wgmma_u8_s8(sum, plane.a + 4 * step,
                     TransposedV<kHeadDim, kKeys>::k_major(v_tile, first_column, step), step > 0);
  }
}

/// out += weight * value(tile, entry) for the columns from `first_column` on. Column 4t + c of row
/// r comes from entry 2r + c / 2 of the even or odd columns (TransposedV).
template <int kColumns, int kHeadDim, typename Value>
__device__ __forceinline__ void drain(tile::Output<kHeadDim>& out, int first_column,
                                      const float (&weight)[2], Value value) {
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    const int row = i % 8 / 4;
    const int column = i % 4;
    float& sum = out.value[first_column / 16 + i / 8][row][column];
    const std::int32_t product = value(i / 8 * 2 + column % 2, 2 * row + column / 2);
    sum = fmaf(static_cast<float>(product), weight[row], sum);
  }
}

}  // namespace qattn::cuda::sm90
