// Peak rate of tdpbssd with every tile in registers.
#include <immintrin.h>

#include "isa.hpp"

namespace {

constexpr int kTileRows = 16;
constexpr int kTileRowBytes = 64;

/// The memory that ldtilecfg reads (Intel SDM, volume 2, LDTILECFG).
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {kTileRowBytes, kTileRowBytes, kTileRowBytes, kTileRowBytes,
                                 kTileRowBytes, kTileRowBytes, kTileRowBytes, kTileRowBytes};
  std::uint8_t rows[16] = {kTileRows, kTileRows, kTileRows, kTileRows,
                           kTileRows, kTileRows, kTileRows, kTileRows};
};
static_assert(sizeof(TileConfig) == 64);

// Constant data rather than a local: GCC's intrinsic tells the compiler of 8 of the 64 bytes that
// it reads, and stores to the others could be dropped.
constexpr TileConfig kConfig;

}  // namespace

extern "C" double QATTN_BENCH_FUNCTION(std::int64_t rounds, const std::int8_t* data,
                                       std::int32_t* sink) {
  static_assert(4 * kTileRows * kTileRowBytes <= qattn::bench::kCeilingDataBytes);
  _tile_loadconfig(&kConfig);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, data, kTileRowBytes);
  _tile_loadd(5, data + 1024, kTileRowBytes);
  _tile_loadd(6, data + 2048, kTileRowBytes);
  _tile_loadd(7, data + 3072, kTileRowBytes);
  for (std::int64_t round = 0; round < rounds; ++round) {
    // Four sums in flight: 4 x 16 cycles cover the latency of 52.
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  static_assert(kTileRows * 16 <= qattn::bench::kCeilingSinkInts);
  _tile_stored(0, sink, kTileRowBytes);
  _tile_stored(1, sink, kTileRowBytes);
  _tile_stored(2, sink, kTileRowBytes);
  _tile_stored(3, sink, kTileRowBytes);
  _tile_release();
  return 2.0 * 4 * 16 * 16 * 64 * static_cast<double>(rounds);
}
