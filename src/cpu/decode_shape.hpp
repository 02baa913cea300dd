// How tiers that take several heads at once (tile/decode_chunk.hpp) divide the heads of a chunk
// task, and the scratch memory that this takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/work.hpp"

namespace qattn::cpu {

/// Rows of a set: one vector of lanes.
inline constexpr std::int64_t kSetLanes = 16;
/// Tiles of values that are added up between loads and stores of the sums, at most.
inline constexpr int kRunTiles = 2;
/// 32-bit elements of a tile.
inline constexpr std::int64_t kTileElements = 256;

struct DecodeShape {
  std::int64_t head_dim;
  std::int64_t rows;  // of a head, at most kSetLanes
  std::int64_t heads;

  /// Heads whose rows lie side by side in the lanes.
  constexpr std::int64_t set_heads() const noexcept { return std::min(kSetLanes / rows, heads); }
  constexpr std::int64_t sets() const noexcept { return (heads + set_heads() - 1) / set_heads(); }

  /// With one row two tiles save time (85 for 83 % of the memory's rate); with four the left
  /// operands of two outgrow the L1 cache (66 for 70 %).
  constexpr int run_tiles() const noexcept { return rows == 1 ? kRunTiles : 1; }

  // Elements of four bytes.
  constexpr std::int64_t query_elements() const noexcept {
    return heads * head_dim * kSetLanes / 4;
  }
  constexpr std::int64_t output_elements() const noexcept { return heads * rows * head_dim; }

  constexpr std::int64_t sum_elements() const noexcept {  // two left operands
    return heads * 2 * ((head_dim + 63) / 64) * kTileElements;
  }

  /// Bytes. 1.6 MB for 32 heads with 16 rows at head_dim 256, whatever the number of keys; 0.4 MB
  /// with one row at head_dim 128.
  constexpr std::size_t scratch_bytes() const noexcept {
    constexpr std::int64_t kCodes = kGroupKeys * kSetLanes;
    const std::int64_t elements = query_elements() + output_elements() + sum_elements() +
                                  (7 * sets() + 3) * kSetLanes + (2 * sets() + 1) * kCodes +
                                  (heads * 2 * kRunTiles + 1) * kTileElements;
    return static_cast<std::size_t>((elements + kSetLanes - 1) / kSetLanes * kSetLanes) * 4;
  }
};

}  // namespace qattn::cpu
