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

/// Two planes, 256 * high + low.
template <int kKeys>
struct Words {
  Bytes<kKeys> high;
  Bytes<kKeys> low;
};

/// The four probabilities of entry i of a plane.
template <int kKeys>
__device__ __forceinline__ void gather(float (&p)[4], const Scores<kKeys>& s, int i) {
#pragma unroll
  for (int j = 0; j < 4; ++j) p[j] = s.probability(i / 2 * 2 + j / 2, 2 * (i % 2) + j % 2);
}

/// Sums of the four lanes of each row.
__device__ __forceinline__ void sum_lanes(std::uint32_t (&sums)[2]) {
#pragma unroll
  for (int mask = 1; mask <= 2; mask *= 2) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      sums[row] += __shfl_xor_sync(0xFFFFFFFFU, sums[row], mask);
    }
  }
}

/// Probabilities in units of 2^-24, at most 255.5, to bytes, and the sums of a row's over all keys.
/// As float16 they are subnormal: their bits are the integers, rounded to the nearest even.
template <int kKeys>
__device__ __forceinline__ void pack_bytes(Bytes<kKeys>& bytes, std::uint32_t (&sums)[2],
                                           const Scores<kKeys>& s) {
  // Two halves of a register each: at most 255 * kKeys / 8.
  std::uint32_t halves[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 4 * Bytes<kKeys>::kSteps; ++i) {
    float p[4];
    gather(p, s, i);
    const std::uint32_t p01 = ptx::cvt_f16x2(p[0], p[1]);
    const std::uint32_t p23 = ptx::cvt_f16x2(p[2], p[3]);
    halves[i % 2] += p01 + p23;
    bytes.a[i] = ptx::prmt(p01, p23, 0x6420);
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) sums[row] = (halves[row] & 0xFFFFU) + (halves[row] >> 16);
  sum_lanes(sums);
}

/// Probabilities to words, and the sums of a row's over all keys. prepare(row, p) makes a number in
/// units of the words, below 2^16, of one; adding 1.5 * 2^23 rounds it to an integer, ties to even.
template <int kKeys, typename Prepare>
__device__ __forceinline__ void pack_words(Words<kKeys>& words, std::uint32_t (&sums)[2],
                                           const Scores<kKeys>& s, Prepare prepare) {
  std::uint32_t high[2] = {0, 0};
  std::uint32_t low[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 4 * Bytes<kKeys>::kSteps; ++i) {
    float p[4];
    gather(p, s, i);
    std::uint32_t bits[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) bits[j] = __float_as_uint(prepare(i % 2, p[j]) + 12582912.0F);
    const std::uint32_t p01 = ptx::prmt(bits[0], bits[1], 0x5410);
    const std::uint32_t p23 = ptx::prmt(bits[2], bits[3], 0x5410);
    words.low.a[i] = ptx::prmt(p01, p23, 0x6420);
    words.high.a[i] = ptx::prmt(p01, p23, 0x7531);
    low[i % 2] = __dp4a(words.low.a[i], 0x01010101U, low[i % 2]);
    high[i % 2] = __dp4a(words.high.a[i], 0x01010101U, high[i % 2]);
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) sums[row] = 256 * high[row] + low[row];
  sum_lanes(sums);
}

/// Starts sum = plane * V for as many columns as `sum` has, from `first_column` on, with the keys
/// from v_keys[t] on of tile t of V, tiles of kTileKeys. The caller fences and commits. Sums stay
/// below 255 * 128 * 128 < 2^22.
template <int kHeadDim, int kTileKeys, int kTiles, int kKeys, int kSumTiles>
__device__ __forceinline__ void multiply_values(std::int32_t (&sum)[kSumTiles][4],
                                                const Bytes<kKeys>& plane,
                                                const std::uint32_t (&v_keys)[kTiles],
                                                int first_column) {
  constexpr int kTileSteps = Bytes<kKeys>::kSteps / kTiles;
  using V = TransposedV<kHeadDim, kTileKeys>;
#pragma unroll
  for (int step = 0; step < Bytes<kKeys>::kSteps; ++step) {
    ptx::wgmma_u8_s8(sum, plane.a + 4 * step,
                     V::k_major(v_keys[step / kTileSteps], first_column, step % kTileSteps),
                     step > 0);
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
