// Products of decoding on vectors: few rows of queries, and keys and values as they lie in the
// caller's memory.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

// What head_dim is a multiple of, and what memory is aligned to.
inline constexpr std::int64_t kVectorBytes = 64;
template <class Lanes>
inline constexpr std::int64_t kLaneBytes = 4 * Lanes::kLanes;
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

// Sums of the lanes of each of as many vectors, in order.
template <class Lanes>
[[gnu::always_inline]] inline typename Lanes::Ints sum_lanes(
    const typename Lanes::Sum (&x)[Lanes::kLanes]) {
  typename Lanes::Ints quads[Lanes::kLanes / kQuad];
#pragma GCC unroll 4
  for (int i = 0; i < Lanes::kLanes / kQuad; ++i) {
    typename Lanes::Ints pairs[2];
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const auto a = Lanes::value(x[4 * i + 2 * j]);
      const auto b = Lanes::value(x[4 * i + 2 * j + 1]);
      pairs[j] = Lanes::template unpack_low<32>(a, b) + Lanes::template unpack_high<32>(a, b);
    }
    quads[i] = Lanes::template unpack_low<64>(pairs[0], pairs[1]) +
               Lanes::template unpack_high<64>(pairs[0], pairs[1]);
  }
  return Lanes::sum_quarters(quads);
}

// Dot products of the keys rows[..] with the queries of kHeads heads of kRows rows each, `offset`
// into the rows; lanes are keys inside rows inside heads. Values of keys count 128 more: they stay
// below 255 * 128 * 256 < 2^23.
template <class Lanes, int kHeads, int kRows, std::int64_t kHeadDim>
[[gnu::always_inline]] inline typename Lanes::Ints dot_quad(const std::int8_t* const (&rows)[kQuad],
                                                            std::int64_t offset,
                                                            std::int64_t head_stride,
                                                            const std::int8_t* queries) {
  const auto flip = Lanes::splat(static_cast<std::int32_t>(0x80808080));
  typename Lanes::Sum sums[Lanes::kLanes] = {};
#pragma GCC unroll 4
  for (int head = 0; head < kHeads; ++head) {
#pragma GCC unroll 4
    for (int i = 0; i < kQuad; ++i) {
#pragma GCC unroll 8
      for (std::int64_t d = 0; d < kHeadDim; d += kLaneBytes<Lanes>) {
        const std::int8_t* from = rows[i] + offset + head * head_stride + d;
        if constexpr (kHeads == 1) prefetch<kFirstCache>(from, kBytesAhead);
        const auto k = Lanes::load_bytes(from) ^ flip;
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row) {
          const auto q = Lanes::load_bytes(queries + (head * kRows + row) * kHeadDim + d);
          auto& sum = sums[(head * kRows + row) * kQuad + i];
          sum = Lanes::hold(Lanes::dot_quads(Lanes::value(sum), k, q));
        }
      }
    }
  }
  return sum_lanes<Lanes>(sums);
}

// Where column d lies: element i of quarter L of vector k is column 16 L + 4 k + i of as many
// columns as a vector has bytes.
template <class Lanes>
constexpr std::int64_t column_place(std::int64_t d) {
  const std::int64_t in_block = d % kLaneBytes<Lanes>;
  return d - in_block + in_block / 4 % 4 * Lanes::kLanes + in_block / 16 * 4 + in_block % 4;
}

// Vectors 2 kHalf and 2 kHalf + 1 of the columns of four rows, each lane with a column's four
// bytes.
template <class Lanes>
struct Interleaved {
  typename Lanes::Ints low;
  typename Lanes::Ints high;
};
template <class Lanes, int kHalf>
[[gnu::always_inline]] inline Interleaved<Lanes> interleave(
    const typename Lanes::Ints (&rows)[kQuad]) {
  const auto unpack = [](auto a, auto b) __attribute__((always_inline)) {
    if constexpr (kHalf == 0) return Lanes::template unpack_low<8>(a, b);
    if constexpr (kHalf == 1) return Lanes::template unpack_high<8>(a, b);
  };
  const auto ab = unpack(rows[0], rows[1]);
  const auto cd = unpack(rows[2], rows[3]);
  return {Lanes::template unpack_low<16>(ab, cd), Lanes::template unpack_high<16>(ab, cd)};
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

// Adds products of values with the codes of kRows rows to their sums, kSumStride apart, for a
// vector of columns or half of it. Codes are one plane of bytes or two, upper and lower, of
// kGroupKeys each.
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
  const auto add = [](auto& to, auto p, auto v) __attribute__((always_inline)) {
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
      return Lanes::load_bytes(from);
    };
    const typename Lanes::Ints rows[kQuad] = {load(0), load(1), load(2), load(3)};
    const Interleaved<Lanes> first = interleave<Lanes, kFirstHalf>(rows);
    const Interleaved<Lanes> second = interleave<Lanes, 1>(rows);
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
      for (int plane = 0; plane < kPlanes; ++plane) {
        std::int32_t code = 0;
        std::memcpy(&code, codes + (2 * row + plane) * kGroupKeys + quad * values.code_stride,
                    sizeof code);
        const auto p = Lanes::splat(code);
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

// The same for a vector of columns, with no more sums at a time than half of the registers hold.
template <class Lanes, int kRows, int kPlanes, std::int64_t kSumStride>
[[gnu::always_inline]] inline void add_values(const ValueQuads& values, std::int64_t offset,
                                              const std::uint8_t* codes, std::int32_t* sums) {
  constexpr int kPairs = Lanes::kRegisters / 4;
  if constexpr (2 * kRows * kPlanes <= kPairs) {
    add_half<Lanes, kRows, kPlanes, 0, 2, kSumStride>(values, offset, codes, sums);
  } else if constexpr (kRows * kPlanes <= kPairs) {
    add_half<Lanes, kRows, kPlanes, 0, 1, kSumStride>(values, offset, codes, sums);
    add_half<Lanes, kRows, kPlanes, 1, 1, kSumStride>(values, offset, codes, sums);
  } else {
    constexpr int kFewer = kRows / 2;
    add_values<Lanes, kFewer, kPlanes, kSumStride>(values, offset, codes, sums);
    add_values<Lanes, kFewer, kPlanes, kSumStride>(values, offset, codes + kFewer * 2 * kGroupKeys,
                                                   sums + kFewer * kSumStride);
  }
}

// Stores four lanes for each of kUnits rows, `stride` apart.
template <class Lanes, int kUnits>
[[gnu::always_inline]] inline void store_units(float* to, std::int64_t stride,
                                               typename Lanes::Ints x) {
  Lanes::template store_quarter<0>(to, x);
  if constexpr (kUnits > 1) Lanes::template store_quarter<1>(to + stride, x);
  if constexpr (kUnits > 2) Lanes::template store_quarter<2>(to + 2 * stride, x);
  if constexpr (kUnits > 3) Lanes::template store_quarter<3>(to + 3 * stride, x);
}

}  // namespace
}  // namespace qattn::cpu
