// Products of decoding on AVX-512: few rows of queries, and keys and values as they lie in the
// caller's memory.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

inline constexpr std::int64_t kVectorBytes = 64;
// Tokens that are taken together: a lane's four bytes of the values.
inline constexpr std::int64_t kQuad = 4;
inline constexpr std::int64_t kGroupQuads = kGroupKeys / kQuad;
// Quads of values between loads and stores of the sums. 32/32 and 32/8 heads (high) with 32768 keys
// on one thread of a Zen 4: 13.2 and 5.5 ms with one, 12.2 and 4.8 with two, 12.7 and 4.8 with
// four.
inline constexpr std::int64_t kValueQuads = 2;

// Bytes by which lines are asked for ahead into L1, as the first ones to be replaced: a few dozen
// lines go through it between two uses of a sum. 32/32 and 32/8 heads as above: 11.8 and 4.7 ms
// without, 11.4 and 4.4 with. For keys of several heads at once there is nothing to gain (10.7 for
// 10.7, 12.8 from 512 bytes on).
inline constexpr std::int64_t kBytesAhead = 256;

// Where a line is asked for: localities of __builtin_prefetch.
inline constexpr int kFirstCache = 0;  // to be replaced first (prefetchnta)
inline constexpr int kSecondCache = 2;

// Never faults, so the address may lie outside of the tensor: it is computed as an integer.
template <int kCache>
[[gnu::always_inline]] inline void prefetch(const std::int8_t* from, std::int64_t ahead) {
  const auto address = std::bit_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(ahead);
  __builtin_prefetch(std::bit_cast<const char*>(address), 0, kCache);
}

// The tokens of a group by position. Where the group is `spread`, position 4 q + i is token
// 32 i + q: quad after quad, the rows of adjacent heads are four streams that each go through
// memory from end to end. The order within a group changes no sum, and no largest score.
class GroupTokens {
 public:
  GroupTokens(const std::int8_t* data, std::int64_t stride, std::int64_t count, bool spread)
      : data_(data),
        quad_stride_(spread ? stride : kQuad * stride),
        token_stride_(spread ? kGroupQuads * stride : stride),
        count_(count) {}

  // Positions from the last token on are the last token: what is made of them is hidden.
  const std::int8_t* row(std::int64_t quad, std::int64_t i) const {
    if (kQuad * quad + i >= count_) {
      quad = (count_ - 1) / kQuad;
      i = (count_ - 1) % kQuad;
    }
    return data_ + quad * quad_stride_ + i * token_stride_;
  }

 private:
  const std::int8_t* data_;
  std::int64_t quad_stride_;
  std::int64_t token_stride_;
  std::int64_t count_;
};

// Sums of the 16 lanes of each of 16 vectors, in order.
template <class Sum>
[[gnu::always_inline]] inline __m512i sum_lanes(const Sum (&x)[16]) {
  __m512i quads[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    __m512i pairs[2];
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const auto a = reinterpret_cast<__m512i>(x[4 * i + 2 * j]);
      const auto b = reinterpret_cast<__m512i>(x[4 * i + 2 * j + 1]);
      pairs[j] = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    }
    quads[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(pairs[0], pairs[1]),
                                _mm512_unpackhi_epi64(pairs[0], pairs[1]));
  }
  __m512i halves[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    halves[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(quads[2 * i], quads[2 * i + 1], 0x44),
                                 _mm512_shuffle_i32x4(quads[2 * i], quads[2 * i + 1], 0xEE));
  }
  return _mm512_add_epi32(_mm512_shuffle_i32x4(halves[0], halves[1], 0x88),
                          _mm512_shuffle_i32x4(halves[0], halves[1], 0xDD));
}

// Dot products of the keys rows[..] with the queries of kHeads heads of kRows rows each, `offset`
// into the rows; lanes are keys inside rows inside heads. Values of keys count 128 more: they stay
// below 255 * 128 * 256 < 2^23.
template <class Lanes, int kHeads, int kRows, int kSteps>
[[gnu::always_inline]] inline typename Lanes::Ints dot_quad(const std::int8_t* const (&rows)[kQuad],
                                                            std::int64_t offset,
                                                            std::int64_t head_stride,
                                                            const std::int8_t* queries) {
  constexpr std::int64_t kHeadDim = kSteps * kVectorBytes;
  const __m512i flip = _mm512_set1_epi8(-128);
  typename Lanes::Sum sums[16] = {};
#pragma GCC unroll 4
  for (int head = 0; head < kHeads; ++head) {
#pragma GCC unroll 4
    for (int i = 0; i < kQuad; ++i) {
#pragma GCC unroll 4
      for (std::int64_t d = 0; d < kHeadDim; d += kVectorBytes) {
        const std::int8_t* from = rows[i] + offset + head * head_stride + d;
        if constexpr (kHeads == 1) prefetch<kFirstCache>(from, kBytesAhead);
        const __m512i k = _mm512_xor_si512(_mm512_loadu_si512(from), flip);
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row) {
          const __m512i q = _mm512_load_si512(queries + (head * kRows + row) * kHeadDim + d);
          auto& sum = sums[(head * kRows + row) * kQuad + i];
          sum = Lanes::hold(Lanes::dot_quads(Lanes::value(sum), k, q));
        }
      }
    }
  }
  return sum_lanes(sums);
}

// Where column d lies: element i of lane quad L of vector k is column 16 L + 4 k + i.
constexpr std::int64_t column_place(std::int64_t d) {
  const std::int64_t in_block = d % 64;
  return d - in_block + in_block / 4 % 4 * 16 + in_block / 16 * 4 + in_block % 4;
}

// Vectors 2 kHalf and 2 kHalf + 1 of the columns of four rows, each lane with a column's four
// bytes.
struct Interleaved {
  __m512i low;
  __m512i high;
};
template <int kHalf>
[[gnu::always_inline]] inline Interleaved interleave(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = kHalf == 0 ? _mm512_unpacklo_epi8(a, b) : _mm512_unpackhi_epi8(a, b);
  const __m512i cd = kHalf == 0 ? _mm512_unpacklo_epi8(c, d) : _mm512_unpackhi_epi8(c, d);
  return {_mm512_unpacklo_epi16(ab, cd), _mm512_unpackhi_epi16(ab, cd)};
}

// The rows of values of some quads and the codes that belong to them, `code_stride` apart. The
// lines `ahead` in the rows are asked for into L2, since eight rows are more than the processor's
// own prefetching keeps up with. With the token that comes next in the rows, 32/32 and 32/8 heads
// take 10.9 and 4.4 ms, for 12.2 and 4.6 without; with the one after that 11.3 and 4.5; the keys,
// four rows at a time, lose by it (11.8).
struct ValueQuads {
  const std::int8_t* rows[kValueQuads * kQuad];
  std::int64_t code_stride;
  std::int64_t ahead;
};

// Adds products of values with the codes of kRows rows to their sums, kSumStride apart, for 64
// columns or half of them. Codes are one plane of bytes or two, upper and lower, of kGroupKeys
// each.
template <class Lanes, int kRows, int kPlanes, int kFirstHalf, int kHalves, std::int64_t kSumStride>
[[gnu::always_inline]] inline void add_half(const ValueQuads& values, std::int64_t offset,
                                            const std::uint8_t* codes, std::int32_t* sums) {
  constexpr int kVectors = 2 * kHalves;
  sums += 2 * kFirstHalf * Lanes::kLanes;
  typename Lanes::Sum sum[kRows][kPlanes][kVectors] = {};
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      sum[row][kPlanes - 1][i] =
          Lanes::hold(Lanes::load(sums + row * kSumStride + i * Lanes::kLanes));
    }
  }
  const auto add = [](auto& to, __m512i p, __m512i v) __attribute__((always_inline)) {
    to = Lanes::hold(Lanes::dot_quads(Lanes::value(to), p, v));
  };
#pragma GCC unroll 2
  for (int quad = 0; quad < kValueQuads; ++quad) {
    const auto load = [&](int i) __attribute__((always_inline)) {
      const std::int8_t* from = values.rows[quad * kQuad + i] + offset;
      if constexpr (kFirstHalf == 0) {
        prefetch<kFirstCache>(from, kBytesAhead);
        prefetch<kSecondCache>(from, values.ahead);
      }
      return _mm512_loadu_si512(from);
    };
    const __m512i rows[kQuad] = {load(0), load(1), load(2), load(3)};
    const Interleaved first = interleave<kFirstHalf>(rows[0], rows[1], rows[2], rows[3]);
    const Interleaved second = interleave<1>(rows[0], rows[1], rows[2], rows[3]);
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
      for (int plane = 0; plane < kPlanes; ++plane) {
        std::int32_t code = 0;
        std::memcpy(&code, codes + (2 * row + plane) * kGroupKeys + quad * values.code_stride,
                    sizeof code);
        const __m512i p = _mm512_set1_epi32(code);
        add(sum[row][plane][0], p, first.low);
        add(sum[row][plane][1], p, first.high);
        if constexpr (kHalves == 2) {
          add(sum[row][plane][2], p, second.low);
          add(sum[row][plane][3], p, second.high);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      auto total = sum[row][kPlanes - 1][i];
      if constexpr (kPlanes == 2) total += sum[row][0][i] << 8;
      Lanes::store(sums + row * kSumStride + i * Lanes::kLanes, Lanes::value(total));
    }
  }
}

// The same for 64 columns. Four rows of words take 32 sums, half of them at a time.
template <class Lanes, int kRows, int kPlanes, std::int64_t kSumStride>
[[gnu::always_inline]] inline void add_values(const ValueQuads& values, std::int64_t offset,
                                              const std::uint8_t* codes, std::int32_t* sums) {
  if constexpr (kRows * kPlanes > 4) {
    add_half<Lanes, kRows, kPlanes, 0, 1, kSumStride>(values, offset, codes, sums);
    add_half<Lanes, kRows, kPlanes, 1, 1, kSumStride>(values, offset, codes, sums);
  } else {
    add_half<Lanes, kRows, kPlanes, 0, 2, kSumStride>(values, offset, codes, sums);
  }
}

// Stores four lanes for each of kUnits rows, `stride` apart.
template <int kUnits>
[[gnu::always_inline]] inline void store_units(float* to, std::int64_t stride, __m512i x) {
  const auto store = [&]<int kUnit>() {
    if constexpr (kUnit < kUnits) {
      _mm_store_si128(reinterpret_cast<__m128i*>(to + kUnit * stride),
                      _mm512_extracti32x4_epi32(x, kUnit));
    }
  };
  store.template operator()<0>();
  store.template operator()<1>();
  store.template operator()<2>();
  store.template operator()<3>();
}

inline __m512i load_units(const std::int32_t* from) { return _mm512_loadu_si512(from); }

// The low bytes of 16 integers.
template <class Lanes>
inline void store_bytes(std::uint8_t* to, typename Lanes::Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x));
}

}  // namespace
}  // namespace qattn::cpu
