// Both matrix products on the tile registers of AMX: packing, S^T = K * Q^T and O^T = V^T * P^T.
// The members are those of PanelOperands.
//
// The left operands lie as rows of bytes: keys as they are, values transposed. The right operands
// are Quads as in the panels: queries as [quad of columns][row], probabilities as [quad of
// keys][row]. A tile product is 16 keys (or columns of V) by 16 rows, over 64 columns (or keys).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/scratch.hpp"
#include "cpu/tile/numerics.hpp"
#include "cpu/tile/tile_elements.hpp"
#include "cpu/tile/tile_products.hpp"
#include "cpu/tile/tile_registers.hpp"
#include "cpu/tile/tile_transpose.hpp"

namespace qattn::cpu {
namespace {

template <class LanesType, int kRowVectorsValue>
struct TileOperands {
  using Lanes = LanesType;
  using Elements = TileElements<Lanes>;
  using Ints = typename Lanes::Ints;
  static constexpr int kRowVectors = kRowVectorsValue;
  static constexpr int kBlockRows = kRowVectors * Lanes::kLanes;
  static constexpr int kStep = Elements::kStep;
  static constexpr int kKeySteps = static_cast<int>(kGroupKeys) / kStep;
  static constexpr int kKeyQuantum = static_cast<int>(kTileRows);
  static_assert(Lanes::kLanes == kTileRows && kBlockRows <= kMaxBlockRows);
  static_assert(kColumnPadding % kTileRows == 0);

  // Tiles that the columns of a query or key take.
  static constexpr std::int64_t depth(std::int64_t head_dim) {
    return (head_dim + kTileRowBytes - 1) / kTileRowBytes;
  }
  static constexpr std::int64_t query_elements(std::int64_t head_dim) {  // per row block
    return depth(head_dim) * kTileRows * kBlockRows;
  }
  static constexpr std::int64_t key_elements(std::int64_t head_dim) {
    return depth(head_dim) * kTileRowBytes * kGroupKeys / 4;
  }
  static constexpr std::int64_t value_elements(std::int64_t head_dim) {
    return padded_columns(head_dim) * kGroupKeys / 4;
  }
  static constexpr std::int64_t probability_elements() {
    return std::int64_t{Elements::operands(Codes::words)} * kKeySteps * kBlockRows;
  }

  // One row block of queries.
  static void pack_queries(std::int32_t* to, const std::int8_t* const* rows,
                           std::int64_t head_dim) {
    for (int row = 0; row < kBlockRows; row += kTileRows) {
      for (std::int64_t d = 0; d < head_dim; d += kTileRowBytes) {
        __m512i square[kTileRows];
        for (int i = 0; i < kTileRows; ++i) square[i] = load_columns(rows[row + i], d, head_dim);
        transpose_dwords(square);
        for (int i = 0; i < kTileRows; ++i) {
          _mm512_store_si512(to + (d / kStep + i) * kBlockRows + row, square[i]);
        }
      }
    }
  }

  // The keys of a group, as whole tiles. Score sums start from kInteger: no corrections.
  static void pack_keys(std::int32_t* to, std::int32_t*, const std::int8_t* const* rows, int keys,
                        std::int64_t head_dim) {
    auto* bytes = reinterpret_cast<std::int8_t*>(to);
    const std::int64_t stride = depth(head_dim) * kTileRowBytes;
    for (int key = 0; key < round_up(keys, kTileRows); ++key) {
      for (std::int64_t d = 0; d < head_dim; d += kTileRowBytes) {
        _mm512_store_si512(bytes + key * stride + d, load_columns(rows[key], d, head_dim));
      }
    }
  }

  // The values of a group, transposed: [column][key].
  static void pack_values(std::int32_t* to, const std::int8_t* const* rows, int keys,
                          std::int64_t head_dim) {
    auto* bytes = reinterpret_cast<std::int8_t*>(to);
    for (int key = 0; key < keys; key += kTileRowBytes) {
      for (std::int64_t d = 0; d < head_dim; d += kTileRowBytes) {
        transpose_values(bytes + d * kGroupKeys + key, rows + key, d, head_dim);
      }
    }
  }

  static constexpr bool kStartsValues = false;
  static void start_values(std::int32_t*, const std::int32_t*, int, std::int64_t) {}

  // scores[key][row] = kInteger + exact dot product, as floats, for keys [0, keys).
  static void scores(float* scores, const std::int32_t* queries, const std::int32_t* packed_keys,
                     const std::int32_t*, int keys, std::int64_t head_dim) {
    const std::int64_t stride = depth(head_dim) * kTileRowBytes;
    const TileRows keys_rows{reinterpret_cast<const std::int8_t*>(packed_keys), stride};
    const TileColumns query_columns{queries, kBlockRows, kTileRows * kBlockRows};
    const auto tiles = static_cast<int>(keys / kTileRows);
    const ScoreSums sums{scores, kBlockRows};
    if constexpr (kRowVectors == 2) {
      if (head_dim <= kTileRowBytes) {
        return multiply_pair<Signed, 1>(keys_rows, query_columns, kTileRows, tiles, sums);
      }
      if (head_dim <= 2 * kTileRowBytes) {
        return multiply_pair<Signed, 2>(keys_rows, query_columns, kTileRows, tiles, sums);
      }
    }
    for (int v = 0; v < kRowVectors; ++v) {
      multiply<Signed>(keys_rows, query_columns.from(v * kTileRows),
                       static_cast<int>(depth(head_dim)), tiles, sums.column(v));
    }
  }

  // The unit of tile products goes to sleep after some 900 cycles without one, and takes 800 to
  // come back: a product now and then, whose result nobody wants, costs 50.
  [[gnu::always_inline]] static void keep_awake() { dot_signed<0, 2, 4>(); }

  // Stores the probabilities of kStep keys for row vector v and adds them to `sums`.
  template <Codes kCodes>
  [[gnu::always_inline]] static void put(std::int32_t* probabilities, int v, int step,
                                         const Ints (&codes)[kStep],
                                         Ints (&sums)[Elements::operands(kCodes)]) {
    constexpr int kOperands = Elements::operands(kCodes);
    Ints packed[kOperands];
    Elements::template pack<kCodes>(packed, codes);
    for (int i = 0; i < kOperands; ++i) {
      sums[i] = Elements::dot(sums[i], packed[i], Lanes::splat(Elements::kOnes));
      Lanes::store(plane(probabilities, i) + step * kBlockRows + v * Lanes::kLanes, packed[i]);
    }
  }

  // Bytes lie as the upper bytes of words do: with lower bytes of 0 they count 256 times.
  static constexpr bool kBytesAreWords = true;
  static void widen(std::int32_t* probabilities, int v, int steps) {
    std::int32_t* low = plane(probabilities, 1) + v * Lanes::kLanes;
    for (int step = 0; step < steps; ++step) Lanes::store(low + step * kBlockRows, Lanes::splat(0));
  }

  // Calls drain(d, v, sum) with the integer sums of probability * value for every d and row vector.
  // `room` is for kSumTiles row blocks of kTileRows columns.
  template <Codes kCodes, class Drain>
  static void products(std::int32_t* probabilities, const std::int32_t* values, const std::int32_t*,
                       int key_steps, std::int64_t head_dim, std::int32_t* room, Drain drain) {
    constexpr int kPlanes = Elements::operands(kCodes);
    const auto depth = static_cast<int>((key_steps + kTileRows - 1) / kTileRows);
    for (int i = 0; i < kPlanes; ++i) {
      clear_steps(plane(probabilities, i), key_steps, depth * static_cast<int>(kTileRows));
    }
    const StoredSums sums{room};
    const auto tiles = static_cast<int>(padded_columns(head_dim) / kTileRows);
    for (int first = 0; first < tiles; first += kSumTiles) {
      const int count = tiles - first < kSumTiles ? tiles - first : kSumTiles;
      const TileRows left{
          reinterpret_cast<const std::int8_t*>(values) + first * kTileRows * kGroupKeys,
          kGroupKeys};
      const std::int64_t d = first * kTileRows;
      if constexpr (kPlanes == 1) {
        multiply_rows(left, probabilities, depth, count, sums);
        drain_tiles<kRowVectors>(
            sums, count, [&](std::int64_t column, int v, Ints sum) __attribute__((always_inline)) {
              drain(d + column, v, sum);
            });
      } else {
        for (int v = 0; v < kRowVectors; ++v) {
          // The two planes of a row vector.
          multiply_two(left,
                       {probabilities + v * Lanes::kLanes, kBlockRows, kTileRows * kBlockRows},
                       kKeySteps * kBlockRows, depth, count, sums);
          drain_planes(
              sums, count, [&](std::int64_t column, Ints sum) __attribute__((always_inline)) {
                drain(d + column, v, sum);
              });
        }
      }
    }
  }

 private:
  static void multiply_two(const TileRows& left, const TileColumns& right, std::int64_t second,
                           int depth, int tiles, const StoredSums& sums) {
    if (depth == 1) {
      multiply_pair<Unsigned, 1>(left, right, second, tiles, sums);
    } else {
      multiply_pair<Unsigned, 2>(left, right, second, tiles, sums);
    }
  }

  static void multiply_rows(const TileRows& left, const std::int32_t* probabilities, int depth,
                            int tiles, const StoredSums& sums) {
    const TileColumns right{probabilities, kBlockRows, kTileRows * kBlockRows};
    if constexpr (kRowVectors == 2) {
      multiply_two(left, right, kTileRows, depth, tiles, sums);
    } else {
      multiply<Unsigned>(left, right, depth, tiles, sums);
    }
  }

  template <int kVectors, class Drain>
  [[gnu::always_inline]] static void drain_tiles(const StoredSums& sums, int tiles, Drain drain) {
    for (int t = 0; t < tiles; ++t) {
      for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 16
        for (int i = 0; i < kTileRows; ++i) {
          drain(t * kTileRows + i, v, Lanes::load(sums.at(t, v) + i * kTileRows));
        }
      }
    }
  }

  template <class Drain>
  [[gnu::always_inline]] static void drain_planes(const StoredSums& sums, int tiles, Drain drain) {
    for (int t = 0; t < tiles; ++t) {
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
        drain(t * kTileRows + i, Elements::combine({Lanes::load(sums.at(t, 0) + i * kTileRows),
                                                    Lanes::load(sums.at(t, 1) + i * kTileRows)}));
      }
    }
  }

  static std::int32_t* plane(std::int32_t* probabilities, int i) {
    return probabilities + i * (kKeySteps * kBlockRows);
  }

  // The tiles take whole multiples of 64 keys.
  static void clear_steps(std::int32_t* probabilities, int begin, int end) {
    for (int at = begin * kBlockRows; at < end * kBlockRows; at += Lanes::kLanes) {
      Lanes::store(probabilities + at, Lanes::splat(0));
    }
  }
};

}  // namespace
}  // namespace qattn::cpu
