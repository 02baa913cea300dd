// Products of decoding on AVX-512 with VNNI: few rows of queries, and keys and values as they lie
// in the caller's memory.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

inline constexpr std::int64_t kVectorBytes = 64;

// Tokens by which rows are asked for ahead, into L2. 32/32 and 32/8 heads with 32768 keys on one
// thread of a Zen 4: 16.0 and 12.9 ms without, 14.1 and 4.4 with 16 tokens, 12.8 and 4.3 with 64,
// 12.0 and 4.3 with 128, where two threads lose a third; into L1, 23 and 8 with 16 tokens.
inline constexpr std::int64_t kTokensAhead = 64;

// The tokens of a group for one head. Those from `count` on are zeros.
struct TokenRows {
  const std::int8_t* data;
  std::int64_t stride;
  std::int64_t count;
  const std::int8_t* zeros;

  const std::int8_t* row(std::int64_t token) const {
    return token < count ? data + token * stride : zeros;
  }
  // Never faults, so the address may lie outside of the tensor: it is computed as an integer.
  void prefetch(const std::int8_t* from) const {
    const auto ahead = static_cast<std::uintptr_t>(kTokensAhead * stride);
    const auto address = std::bit_cast<std::uintptr_t>(from) + ahead;
    _mm_prefetch(std::bit_cast<const char*>(address), _MM_HINT_T1);
  }
};

// Sums of the 16 lanes of each of 16 vectors, in order.
inline __m512i sum_lanes(__m512i (&x)[16]) {
  __m512i quads[4];
  for (int i = 0; i < 4; ++i) {
    __m512i pairs[2];
    for (int j = 0; j < 2; ++j) {
      const __m512i a = x[4 * i + 2 * j];
      const __m512i b = x[4 * i + 2 * j + 1];
      pairs[j] = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    }
    quads[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(pairs[0], pairs[1]),
                                _mm512_unpackhi_epi64(pairs[0], pairs[1]));
  }
  __m512i halves[2];
  for (int i = 0; i < 2; ++i) {
    halves[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(quads[2 * i], quads[2 * i + 1], 0x44),
                                 _mm512_shuffle_i32x4(quads[2 * i], quads[2 * i + 1], 0xEE));
  }
  return _mm512_add_epi32(_mm512_shuffle_i32x4(halves[0], halves[1], 0x88),
                          _mm512_shuffle_i32x4(halves[0], halves[1], 0xDD));
}

// Dot products of 16 / kRows keys from `key` on, each value 128 larger, with kRows rows of queries;
// lanes are keys inside rows. They stay below 255 * 128 * 256 < 2^23.
template <class Lanes, int kRows, int kSteps>
[[gnu::always_inline]] inline typename Lanes::Ints dot_tokens(const TokenRows& keys,
                                                              std::int64_t key,
                                                              const std::int8_t* queries) {
  constexpr std::int64_t kHeadDim = kSteps * kVectorBytes;
  constexpr int kKeys = 16 / kRows;
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sums[16];
#pragma GCC unroll 16
  for (int i = 0; i < kKeys; ++i) {
    const std::int8_t* from = keys.row(key + i);
    __m512i sum[kRows];
    for (__m512i& x : sum) x = _mm512_setzero_si512();
    for (std::int64_t d = 0; d < kHeadDim; d += kVectorBytes) {
      keys.prefetch(from + d);
      const __m512i k = _mm512_xor_si512(_mm512_loadu_si512(from + d), flip);
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const __m512i q = _mm512_load_si512(queries + row * kHeadDim + d);
        sum[row] = _mm512_dpbusd_epi32(sum[row], k, q);
      }
    }
    for (int row = 0; row < kRows; ++row) sums[row * kKeys + i] = sum[row];
  }
  return sum_lanes(sums);
}

// Where column d lies: element i of lane quad L of vector k is column 16 L + 4 k + i.
constexpr std::int64_t column_place(std::int64_t d) {
  const std::int64_t in_block = d % 64;
  return d - in_block + in_block / 4 % 4 * 16 + in_block / 16 * 4 + in_block % 4;
}

// Adds the products of the columns [d, d + 64) of the tokens [begin, end) with the codes of kRows
// rows to their sums, `sum_stride` apart. Codes are one plane of bytes or two, upper and lower, of
// kGroupKeys each, and zeros for tokens that are not there.
template <int kRows, int kPlanes>
[[gnu::always_inline]] inline void add_tokens(const TokenRows& values, std::int64_t begin,
                                              std::int64_t end, std::int64_t d,
                                              const std::uint8_t* codes, std::int32_t* sums,
                                              std::int64_t sum_stride) {
  __m512i sum[kRows][kPlanes][4];
  for (auto& planes : sum) {
    for (auto& vectors : planes) {
      for (__m512i& x : vectors) x = _mm512_setzero_si512();
    }
  }
  for (std::int64_t token = begin; token < end; token += 4) {
    __m512i rows[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const std::int8_t* from = values.row(token + i) + d;
      values.prefetch(from);
      rows[i] = _mm512_loadu_si512(from);
    }
    const __m512i low[2] = {_mm512_unpacklo_epi8(rows[0], rows[1]),
                            _mm512_unpackhi_epi8(rows[0], rows[1])};
    const __m512i high[2] = {_mm512_unpacklo_epi8(rows[2], rows[3]),
                             _mm512_unpackhi_epi8(rows[2], rows[3])};
    const __m512i quads[4] = {
        _mm512_unpacklo_epi16(low[0], high[0]), _mm512_unpackhi_epi16(low[0], high[0]),
        _mm512_unpacklo_epi16(low[1], high[1]), _mm512_unpackhi_epi16(low[1], high[1])};
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
      for (int plane = 0; plane < kPlanes; ++plane) {
        std::int32_t code = 0;
        std::memcpy(&code, codes + (2 * row + plane) * kGroupKeys + token, sizeof code);
        const __m512i p = _mm512_set1_epi32(code);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          sum[row][plane][i] = _mm512_dpbusd_epi32(sum[row][plane][i], p, quads[i]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      std::int32_t* to = sums + row * sum_stride + d + i * 16;
      __m512i total = sum[row][0][i];
      if constexpr (kPlanes == 2) {
        total = _mm512_add_epi32(_mm512_slli_epi32(total, 8), sum[row][1][i]);
      }
      _mm512_store_si512(to, _mm512_add_epi32(_mm512_load_si512(to), total));
    }
  }
}

// The low bytes of 16 integers.
template <class Lanes>
inline void store_bytes(std::uint8_t* to, typename Lanes::Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x));
}

}  // namespace
}  // namespace qattn::cpu
