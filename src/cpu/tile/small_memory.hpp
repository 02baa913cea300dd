// What a SmallTask keeps in its scratch memory, and how its keys and values are packed.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/scratch.hpp"
#include "cpu/tile/avx512_transpose.hpp"
#include "cpu/tile/elements.hpp"
#include "cpu/tile/numerics.hpp"
#include "cpu/tile/panel_operands.hpp"
#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

constexpr std::int64_t kSmallMaxHeadDim = 64;
constexpr int kSmallRows = 16;     // in the lanes at once, or half of them
constexpr int kSmallKeys = 8;      // scored at once: two quads
constexpr int kSmallColumns = 32;  // of values, at once
constexpr int kSmallQuads = static_cast<int>(kGroupKeys) / 4;
constexpr int kSetRows = 4;  // whose probabilities are refined together
constexpr int kMaxSets = 2;

// Rows of a block with 16-bit probabilities among others of 8.
struct alignas(kScratchAlignment) SmallSet {
  std::int32_t high[kSmallQuads * kSetRows];  // [quad of keys][row]
  std::int32_t low[kSmallQuads * kSetRows];
  int lanes[kSmallRows];  // of the block; the last repeats
  int count;              // of the rows, at most kSetRows
};

// A block of rows, one in each lane; lanes without a row repeat the last but have zeros for
// queries.
struct alignas(kScratchAlignment) SmallBlock {
  std::int32_t visible[kSmallRows];  // keys
  float factors[kSmallRows];
  std::int32_t queries[kSmallMaxHeadDim / 4 * kSmallRows];  // [quad of columns][row]
  std::int32_t start[kSmallRows];                           // of the scores' sums
  float scores[kGroupKeys * kSmallRows];                    // [key][row]
  float maximum[kSmallRows];                                // but that of key 0
};

struct alignas(kScratchAlignment) SmallMemory {
  std::uint8_t keys[kGroupKeys * kSmallMaxHeadDim + 64];  // [key][column], plus 128
  std::int8_t values[kGroupKeys * kSmallMaxHeadDim];  // [columns / 32][quad of keys][column][key]
  float first_value[kSmallMaxHeadDim];                // of key 0, times kUnit
  SmallBlock blocks[2];                               // in turns
  std::int32_t high[kSmallQuads * kSmallRows];  // probabilities: [quad of keys][row]; the upper
  std::int32_t low[kSmallQuads * kSmallRows];   // byte of 16 bits or the only one, and the lower
  SmallSet sets[kMaxSets];
  float old_weight[kSmallRows];
  float new_weight[kSmallRows];
  float byte_weight[kSmallRows];  // new_weight for 8-bit probabilities
  float inverse[kSmallRows];
};
static_assert(sizeof(SmallMemory) <= scratch_bytes({1, 1, 1}));

inline __mmask64 below(std::int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}
inline __mmask16 lanes_below(std::int64_t count) {
  return count >= 16 ? 0xFFFF : static_cast<__mmask16>((1U << (count < 0 ? 0 : count)) - 1);
}

// Steps through the rows of a tensor in the order of a task: the heads of a group, then queries.
template <class T>
class RowWalk {
 public:
  template <class Tensor>
  RowWalk(const Tensor& tensor, const Work& work, std::int64_t group_size, std::int64_t row)
      : head_stride_(tensor.strides.heads),
        wrap_(tensor.strides.seq - group_size * head_stride_),
        group_size_(group_size),
        head_(row % group_size),
        data_(tensor.row(work.batch, row / group_size, work.head_kv * group_size + head_)) {}

  T* next() {
    T* const row = data_;
    data_ += head_stride_;
    if (++head_ == group_size_) {
      head_ = 0;
      data_ += wrap_;
    }
    return row;
  }

 private:
  const std::int64_t head_stride_;
  const std::int64_t wrap_;
  const std::int64_t group_size_;
  std::int64_t head_;
  T* data_;
};

// The keys, plus 128, as rows of whole dwords; whole steps of kSmallKeys. (Columns beyond head_dim
// meet zeros of the queries.) Rows are stored whole: what is too much, the next one overwrites.
inline void pack_small_keys(std::uint8_t* to, const std::int8_t* from, std::int64_t stride,
                            int keys, std::int64_t head_dim) {
  const __m512i offset = _mm512_set1_epi8(-128);
  const __mmask64 columns = below(head_dim);
  const std::int64_t row_bytes = round_up(head_dim, 4);
  int key = 0;
  if (head_dim <= 32) {
    for (; key < keys; ++key, from += stride, to += row_bytes) {
      const __m256i row = _mm256_maskz_loadu_epi8(static_cast<__mmask32>(columns), from);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                          _mm256_xor_si256(row, _mm512_castsi512_si256(offset)));
    }
  } else {
    for (; key < keys; ++key, from += stride, to += row_bytes) {
      const __m512i row = _mm512_maskz_loadu_epi8(columns, from);
      _mm512_storeu_si512(to, _mm512_xor_si512(row, offset));
    }
  }
  for (; key % kSmallKeys != 0; ++key, to += row_bytes) _mm512_storeu_si512(to, offset);
}

// Sixteen rows of at most eight dwords: two rows in each vector on the way.
inline void transpose_short_rows(__m512i (&square)[8], const std::int8_t* const (&rows)[kSmallRows],
                                 std::int64_t head_dim) {
  const auto columns = static_cast<__mmask32>(below(head_dim));
  __m512i x[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    x[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_maskz_loadu_epi8(columns, rows[i])),
                              _mm256_maskz_loadu_epi8(columns, rows[i + 8]), 1);
  }
  __m512i t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    x[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // x[i] has dwords i and i + 4 of rows 0 to 3, then of rows 8 to 11; x[i + 4] those 4 rows later.
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
  const __m512i second = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    square[i] = _mm512_permutex2var_epi64(x[i], first, x[i + 4]);
    square[i + 4] = _mm512_permutex2var_epi64(x[i], second, x[i + 4]);
  }
}

// The queries of a block, zeros where it has no row, and what their score sums start from:
// kIntegerBits, less what the offset of the keys adds.
template <int kSteps>
inline void pack_queries_of(SmallBlock& block, const std::int8_t* const (&rows)[kSmallRows],
                            std::int64_t head_dim) {
  __m512i square[kSteps];
  if constexpr (kSteps == 8) {
    transpose_short_rows(square, rows, head_dim);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < kSmallRows; ++i) {
      square[i] = _mm512_maskz_loadu_epi8(below(head_dim), rows[i]);
    }
    transpose_dwords(square);
  }
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sums[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 16
  for (int i = 0; i < kSteps; ++i) {
    _mm512_store_si512(block.queries + i * kSmallRows, square[i]);
    sums[i % 2] = _mm512_dpbusd_epi32(sums[i % 2], ones, square[i]);
  }
  const __m512i sum = _mm512_add_epi32(sums[0], sums[1]);
  _mm512_store_si512(block.start,
                     _mm512_sub_epi32(_mm512_set1_epi32(kIntegerBits), _mm512_slli_epi32(sum, 7)));
}

inline void pack_small_queries(SmallBlock& block, RowWalk<const std::int8_t> from, int count,
                               std::int64_t head_dim) {
  const std::int8_t* rows[kSmallRows];
  for (int i = 0; i < kSmallRows; ++i) rows[i] = i < count ? from.next() : kZeroRow;
  if (head_dim <= 32) {
    pack_queries_of<8>(block, rows, head_dim);
  } else {
    pack_queries_of<16>(block, rows, head_dim);
  }
}

// Four rows of values, 16 columns: one dword per column.
inline __m512i interleave_rows(const std::int8_t* const (&rows)[4], __mmask16 columns) {
  const auto load = [&](int i) { return _mm_maskz_loadu_epi8(columns, rows[i]); };
  __m512i x = _mm512_castsi128_si512(load(0));
  x = _mm512_inserti32x4(x, load(1), 1);
  x = _mm512_inserti32x4(x, load(2), 2);
  x = _mm512_inserti32x4(x, load(3), 3);
  const __m512i gather = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i bytes =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(gather, x), bytes);
}

// The values, and those of key 0 as the state starts from them.
template <class Lanes>
inline void pack_small_values(SmallMemory& memory, const std::int8_t* first, std::int64_t stride,
                              int keys, std::int64_t head_dim) {
  for (std::int64_t d = 0; d < head_dim; d += kSmallColumns) {
    std::int8_t* to = memory.values + d * kGroupKeys;
    for (int key = 0; key < keys; key += 4) {
      for (std::int64_t column = d; column < d + kSmallColumns; column += 16, to += 64) {
        if (column >= head_dim) {
          _mm512_store_si512(to, _mm512_setzero_si512());
          continue;
        }
        const std::int8_t* rows[4];
        for (int i = 0; i < 4; ++i) {
          rows[i] = key + i < keys ? first + (key + i) * stride + column : kZeroRow;
        }
        _mm512_store_si512(to, interleave_rows(rows, lanes_below(head_dim - column)));
      }
    }
  }
  for (std::int64_t column = 0; column < head_dim; column += 16) {
    const __m512i value =
        _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(lanes_below(head_dim - column), first + column));
    Lanes::store(memory.first_value + column,
                 Lanes::to_floats(typename Lanes::Ints(value)) * Lanes::splat(kUnit));
  }
}

}  // namespace
}  // namespace qattn::cpu
