// The tile registers of AMX (palette 1: eight tiles of 16 rows of 64 bytes), one function per
// instruction. Registers are template arguments since the instructions name them in their encoding;
// GCC's intrinsics are macros that take literal numbers only.
//
// What was measured on Emerald Rapids and shapes the callers: a product takes 16 cycles and its
// result is ready after 52; products that add to one tile follow each other without a wait, but a
// tile is not renamed, so setting it to zero waits for the last product into it. While tile
// instructions are under way (and some 80 cycles longer) port 5 does no floating-point
// multiplications, maxima or conversions: such work costs twice as much there.
#pragma once

#include <cstdint>

namespace qattn::cpu {
namespace {

constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kTileRowBytes = 64;
constexpr std::int64_t kTileBytes = kTileRows * kTileRowBytes;

// What ldtilecfg reads (Intel SDM, volume 2, LDTILECFG).
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig kWholeTiles;

// Tiles are configured for the lifetime of this object, and released at its end: what other code
// in the thread had configured before is gone, as it is after a call to any function (System V
// ABI: tile registers and their configuration are scratch).
class TileScope {
 public:
  TileScope() { __asm__ volatile("ldtilecfg %0" : : "m"(kWholeTiles)); }
  ~TileScope() { __asm__ volatile("tilerelease"); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

// Another configuration within a TileScope; all tiles are zero after it.
[[gnu::always_inline]] inline void configure_tiles(const TileConfig& config) {
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

template <int kTile>
[[gnu::always_inline]] inline void zero_tile() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

// 16 rows of 64 bytes, `stride` bytes apart.
template <int kTile>
[[gnu::always_inline]] inline void load_tile(const void* from, std::int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                   :
                   : "r"(from), "r"(stride), "i"(kTile)
                   : "memory");
}

// The same, past the L1 cache: it leaves there what is written and read again.
template <int kTile>
[[gnu::always_inline]] inline void load_tile_once(const void* from, std::int64_t stride) {
  __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                   :
                   : "r"(from), "r"(stride), "i"(kTile)
                   : "memory");
}

template <int kTile>
[[gnu::always_inline]] inline void store_tile(void* to, std::int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                   :
                   : "r"(to), "r"(stride), "i"(kTile)
                   : "memory");
}

// sum[i][j] += a[i][4 s + t] * b[s][4 j + t], summed over s and t; int8 by int8.
template <int kSum, int kA, int kB>
[[gnu::always_inline]] inline void dot_signed() {
  __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

// The same, int8 by uint8.
template <int kSum, int kA, int kB>
[[gnu::always_inline]] inline void dot_signed_unsigned() {
  __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

// The same, uint8 by int8.
template <int kSum, int kA, int kB>
[[gnu::always_inline]] inline void dot_unsigned_signed() {
  __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

}  // namespace
}  // namespace qattn::cpu
