// Matrix products of decoding on the tile registers: few rows of queries, and keys and values that
// are used once, so they are loaded as they lie in the caller's memory.
//
// Scores: keys are the left operand. The rows of a set's heads lie in different lanes: the right
// operand of a head has zeros in all lanes but its own, so one tile of sums serves all of them.
//
// Values: a row of 64 bytes of V, taken for 16 quads, is a right operand whose quad n holds columns
// 4 n + t. Against a left operand with a probability in byte t of a quad and zeros in its other
// bytes, the product sums column 4 n + t over 16 keys: four rows of the left operand make up for
// the quads of keys into which V would have to be shuffled otherwise (8 cycles a key).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "cpu/tile/numerics.hpp"
#include "cpu/tile/tile_products.hpp"
#include "cpu/tile/tile_registers.hpp"
#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

constexpr int kGroupTiles = static_cast<int>(kGroupKeys / kTileRows);

// The keys or values of a group, of heads that lie side by side, in tiles of 16 tokens.
//
// Tiles are loaded from the tensor: one that is loaded from where vectors have just been stored
// costs 8 to 15 cycles a key in place of 3.3. The tokens of a tile lie kGroupTiles apart where the
// group is whole and all of it visible (the order of keys within a group is of no consequence): as
// tile follows tile and head follows head, each of 16 streams then walks through memory line by
// line, which is what the processor's own prefetching takes up.
struct GroupRows {
  const std::int8_t* data;
  std::int64_t row_stride;
  std::int64_t tile_stride;
  std::int64_t head_stride;
  std::int64_t count;  // tokens that the tensor has
  std::int8_t* tail;   // room for a tile

  GroupRows(const core::InputRef& tensor, std::int64_t batch, std::int64_t key, std::int64_t keys,
            std::int64_t head, bool interleaved, std::int8_t* room)
      : data(tensor.row(batch, key, head)),
        row_stride(tensor.strides.seq * (interleaved ? kGroupTiles : 1)),
        tile_stride(tensor.strides.seq * (interleaved ? 1 : kTileRows)),
        head_stride(tensor.strides.heads),
        count(interleaved ? kGroupKeys : keys),
        tail(room) {}

  // Columns [d, d + 64) of a tile's rows of one head.
  template <int kTile>
  [[gnu::always_inline]] void load(std::int64_t tile, std::int64_t head, std::int64_t d) const {
    const std::int8_t* from = data + tile * tile_stride + head * head_stride + d;
    if ((tile + 1) * kTileRows <= count) {
      load_tile<kTile>(from, row_stride);
    } else {
      copy_tail(from, count - tile * kTileRows);
      load_tile<kTile>(tail, kTileRowBytes);
    }
  }

 private:
  void copy_tail(const std::int8_t* from, std::int64_t rows) const {
    std::memset(tail, 0, kTileBytes);
    for (std::int64_t i = 0; i < rows; ++i) {
      std::memcpy(tail + i * kTileRowBytes, from + i * row_stride, kTileRowBytes);
    }
  }
};

// Adds the scores of one head to the sums of a tile of keys, tile register kSum.
template <int kSum>
inline void add_scores(const GroupRows& keys, int tile, std::int64_t head,
                       const std::int32_t* queries, std::int64_t head_dim) {
  constexpr std::int64_t kTileQueries = kTileRows * kTileRows;
  for (std::int64_t d = 0; d < head_dim; d += 2 * kTileRowBytes, queries += 2 * kTileQueries) {
    load_tile<4>(queries, kTileRowBytes);
    keys.load<6>(tile, head, d);
    dot_signed<kSum, 6, 4>();
    if (d + kTileRowBytes == head_dim) return;
    load_tile<5>(queries + kTileQueries, kTileRowBytes);
    keys.load<7>(tile, head, d + kTileRowBytes);
    dot_signed<kSum, 7, 5>();
  }
}

// Sums on their way from tile registers to memory: two sets of them take turns, and a set is stored
// when the products of the next one are under way.
class PendingSums {
 public:
  PendingSums() = default;

  // Tile registers 2 * kSet and, of two blocks, the next one.
  template <int kSet, int kBlocks>
  [[gnu::always_inline]] void put(std::int32_t* sums) {
    if (to_ != nullptr) store<1 - kSet>();
    to_ = sums;
    two_blocks_ = kBlocks == 2;
    second_set_ = kSet == 1;
  }
  void flush() {
    if (to_ == nullptr) return;
    second_set_ ? store<1>() : store<0>();
    to_ = nullptr;
  }

 private:
  template <int kSet>
  [[gnu::always_inline]] void store() const {
    store_tile<2 * kSet>(to_, kTileRowBytes);
    if (two_blocks_) store_tile<2 * kSet + 1>(to_ + kTileRows * kTileRows, kTileRowBytes);
  }

  std::int32_t* to_ = nullptr;
  bool two_blocks_ = false;
  bool second_set_ = false;
};

// Adds values of one head, kBlocks times 64 columns of the tiles [tile, end), weighted by a left
// operand of up to four units (a row's 8-bit probabilities, or one byte of its 16-bit ones), to
// sums[block][4 * unit + t][n]. The sets are used in turns. Values that are in the registers from
// the call before are not loaded (then for one tile only).
template <int kSet, int kBlocks, bool kLoadValues>
[[gnu::always_inline]] inline void add_values(const GroupRows& values, int tile, int end,
                                              std::int64_t head, std::int64_t d,
                                              const std::int8_t* expanded, std::int32_t* sums,
                                              PendingSums& pending) {
  constexpr int kSum = 2 * kSet;
  constexpr int kOperand = 4 + kSet;
  if (tile == 0) {
    zero_tile<kSum>();
    if constexpr (kBlocks == 2) zero_tile<kSum + 1>();
  } else {
    load_tile<kSum>(sums, kTileRowBytes);
    if constexpr (kBlocks == 2) load_tile<kSum + 1>(sums + kTileRows * kTileRows, kTileRowBytes);
  }
  for (; tile < end; ++tile, expanded += 2 * kTileBytes) {
    load_tile<kOperand>(expanded, kTileRowBytes);
    if constexpr (kLoadValues) values.load<6>(tile, head, d);
    dot_unsigned_signed<kSum, kOperand, 6>();
    if constexpr (kBlocks == 2) {
      if constexpr (kLoadValues) values.load<7>(tile, head, d + kTileRowBytes);
      dot_unsigned_signed<kSum + 1, kOperand, 7>();
    }
  }
  pending.put<kSet, kBlocks>(sums);
}

// Left operand of add_values(): a unit's rows from its probabilities by key. Returns where the next
// unit goes.
inline std::int8_t* expand(std::int8_t* to, __m512i codes) {
  _mm512_store_si512(to, codes);
  _mm512_store_si512(to + kTileRowBytes, _mm512_slli_epi32(codes, 8));
  _mm512_store_si512(to + 2 * kTileRowBytes, _mm512_slli_epi32(codes, 16));
  _mm512_store_si512(to + 3 * kTileRowBytes, _mm512_slli_epi32(codes, 24));
  return to + 4 * kTileRowBytes;
}

}  // namespace
}  // namespace qattn::cpu
