// Products of tiles: left operands as rows of bytes, right operands as quads.
//
// Two sums take turns. A product is ready 52 cycles after it was issued and a tile cannot be zeroed
// or stored before, so each sum is stored while the other one's products are under way: 16 cycles
// for a product, the rate of the unit (with one pair zeroed, multiplied and stored together: 34).
#pragma once

#include <cstdint>

#include "cpu/tile/numerics.hpp"
#include "cpu/tile/tile_registers.hpp"

namespace qattn::cpu {
namespace {

// Left operand: tile t is rows [16 t, 16 t + 16), 64 bytes of them for each step of the depth.
struct TileRows {
  const std::int8_t* data;
  std::int64_t stride;

  template <int kTile>
  [[gnu::always_inline]] void load(int t, int step) const {
    load_tile_once<kTile>(data + t * kTileRows * stride + step * kTileRowBytes, stride);
  }
};

// Right operand: 16 quads by 16 rows for each step of the depth.
struct TileColumns {
  const std::int32_t* data;
  std::int64_t stride;       // dwords from quad to quad
  std::int64_t step_stride;  // dwords from step to step

  TileColumns from(std::int64_t offset) const { return {data + offset, stride, step_stride}; }
  template <int kTile>
  [[gnu::always_inline]] void load(int step) const {
    load_tile<kTile>(data + step * step_stride, stride * 4);
  }
};

struct Signed {
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] static void dot() {
    dot_signed<kSum, kA, kB>();
  }
};

struct Unsigned {
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] static void dot() {
    dot_signed_unsigned<kSum, kA, kB>();
  }
};

// For each of `tiles` left tiles the products with two right operands, `second` dwords apart, which
// stay in registers. Calls sums.start<tile>() and sums.store<tile>(t, which).
template <class Dot, int kDepth, class Sums>
inline void multiply_pair(const TileRows& left, const TileColumns& right, std::int64_t second,
                          int tiles, const Sums& sums) {
  static_assert(kDepth == 1 || kDepth == 2);
  right.load<4>(0);
  right.from(second).load<5>(0);
  if constexpr (kDepth == 2) {
    right.load<6>(1);
    right.from(second).load<7>(1);
  }
  for (int t = 0; t < tiles; ++t) {
    left.load<2>(t, 0);
    if constexpr (kDepth == 2) left.load<3>(t, 1);
    sums.template start<0>();
    Dot::template dot<0, 2, 4>();
    if constexpr (kDepth == 2) Dot::template dot<0, 3, 6>();
    if (t != 0) sums.template store<1>(t - 1, 1);
    sums.template start<1>();
    Dot::template dot<1, 2, 5>();
    if constexpr (kDepth == 2) Dot::template dot<1, 3, 7>();
    sums.template store<0>(t, 0);
  }
  sums.template store<1>(tiles - 1, 1);
}

template <class Dot, int kSum>
[[gnu::always_inline]] inline void multiply_tile(const TileRows& left, const TileColumns& right,
                                                 int depth, int t) {
  for (int step = 0; step < depth; ++step) {
    left.load<2 + kSum>(t, step);
    right.load<4 + kSum>(step);
    Dot::template dot<kSum, 2 + kSum, 4 + kSum>();
  }
}

// For each of `tiles` left tiles the product with one right operand, of any depth. Calls as above,
// with 0 for `which`.
template <class Dot, class Sums>
inline void multiply(const TileRows& left, const TileColumns& right, int depth, int tiles,
                     const Sums& sums) {
  for (int t = 0; t < tiles; t += 2) {
    sums.template start<0>();
    multiply_tile<Dot, 0>(left, right, depth, t);
    if (t != 0) sums.template store<1>(t - 1, 0);
    if (t + 1 == tiles) return sums.template store<0>(t, 0);
    sums.template start<1>();
    multiply_tile<Dot, 1>(left, right, depth, t + 1);
    sums.template store<0>(t, 0);
  }
  sums.template store<1>(tiles - 1, 0);
}

// --- where sums go ------------------------------------------------------------------------------

// A tile of kIntegerBits: scores start from it, so that their bits are the float kInteger + score.
// (Loading it costs less than converting every score.)
struct alignas(64) IntegerTile {
  std::int32_t bits[kTileRows * kTileRows] = {};
  constexpr IntegerTile() {
    for (auto& x : bits) x = kIntegerBits;
  }
};
constexpr IntegerTile kIntegerTile;

// Scores, as [key][row].
struct ScoreSums {
  float* scores;
  std::int64_t stride;  // rows of the block

  ScoreSums column(int v) const { return {scores + v * kTileRows, stride}; }
  template <int kTile>
  [[gnu::always_inline]] void start() const {
    load_tile<kTile>(kIntegerTile.bits, kTileRowBytes);
  }
  template <int kTile>
  [[gnu::always_inline]] void store(int t, int which) const {
    store_tile<kTile>(scores + t * kTileRows * stride + which * kTileRows, stride * 4);
  }
};

// Sums on their way from the tiles to the output: of two right operands and up to kSumTiles left
// tiles. They are drained when all are there, since the vectors do such work at half their rate
// while the tiles are at theirs.
constexpr int kSumTiles = 8;
constexpr std::int64_t kTileSums = kTileRows * kTileRows;

struct StoredSums {
  std::int32_t* sums;

  template <int kTile>
  [[gnu::always_inline]] void start() const {
    zero_tile<kTile>();
  }
  template <int kTile>
  [[gnu::always_inline]] void store(int t, int which) const {
    store_tile<kTile>(at(t, which), kTileRowBytes);
  }
  std::int32_t* at(int t, int which) const { return sums + (t * 2 + which) * kTileSums; }
};

}  // namespace
}  // namespace qattn::cpu
