// Global memory to a tile in shared memory, at any alignment.
#pragma once

#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/st_shared.cuh"
#include "cuda/tile/layout.cuh"

namespace qattn::cuda::tile {

/// Bytes of chunk `chunk` that exist in a row of `head_dim` bytes.
__device__ __forceinline__ int valid_bytes(int head_dim, int chunk) {
  return min(max(head_dim - 16 * chunk, 0), 16);
}

/// One chunk of a tensor whose rows are not 16-byte aligned; reads `valid` bytes and no more.
__device__ __forceinline__ void load_unaligned_chunk(std::uint32_t to, const std::int8_t* from,
                                                     int valid, Alignment alignment) {
  if (alignment == Alignment::bytes_4) {
    for (int i = 0; i < 16; i += 4) {
      ptx::cp_async_4(to + i, from + i, min(max(valid - i, 0), 4));
    }
    return;
  }
  std::uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (i < valid)
      words[i / 4] |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(from[i])) << 8 * (i % 4);
  }
  ptx::st_shared_16(to, words);
}

/// Loads kRows rows into `tile` with all threads of the block; rows from `valid_rows` on and
/// columns from `head_dim` on become 0. `row_pointer(r)` is called for all rows; what it gives for
/// rows that are not valid is not read. The caller commits the copies and waits.
template <int kHeadDim, int kRows, int kThreads, typename RowPointer>
__device__ __forceinline__ void load_rows(std::uint32_t tile, int valid_rows, int head_dim,
                                          Alignment alignment, RowPointer row_pointer) {
  using Layout = tile::Layout<kHeadDim>;
  // Neighbouring threads take neighbouring chunks of a row; rows of a thread are so far apart that
  // they have the same XOR, and all of its shared addresses differ by constants.
  constexpr int kRowsPerPass = kThreads / Layout::kSpan;
  static_assert(kRowsPerPass % 8 == 0 && kRows % kRowsPerPass == 0);
  const int first_row = static_cast<int>(threadIdx.x) / Layout::kSpan;
  const int first_chunk = static_cast<int>(threadIdx.x) % Layout::kSpan;
  const std::uint32_t first_to = tile + Layout::offset(first_row, first_chunk);
  const auto for_each_chunk = [&](int row, auto copy) {
    const std::int8_t* from = row_pointer(row) + 16 * first_chunk;
    const std::uint32_t to = first_to + (row - first_row) * kHeadDim;
#pragma unroll
    for (int chunk = 0; chunk < Layout::kChunks; chunk += Layout::kSpan) {
      const int valid = row < valid_rows ? valid_bytes(head_dim, first_chunk + chunk) : 0;
      copy(to + 16 * chunk, from + 16 * chunk, valid);
    }
  };
  if (alignment == Alignment::bytes_16) {
#pragma unroll
    for (int pass = 0; pass < kRows / kRowsPerPass; ++pass) {
      for_each_chunk(first_row + pass * kRowsPerPass, ptx::cp_async_16);
    }
    return;
  }
#pragma unroll 1
  for (int row = first_row; row < kRows; row += kRowsPerPass) {
    for_each_chunk(row, [alignment](std::uint32_t to, const std::int8_t* from, int valid) {
      load_unaligned_chunk(to, from, valid, alignment);
    });
  }
}

/// Loads slices of tiles with a warp: 32 rows, and kColumns bytes of each. Neighbouring threads
/// take neighbouring chunks of a row.
template <int kHeadDim, int kColumns>
struct SliceLoader {
  using Layout = tile::Layout<kHeadDim>;
  static constexpr int kChunks = kColumns / 16;
  static constexpr int kSpan = (kChunks & -kChunks) < 8 ? (kChunks & -kChunks) : 8;
  static constexpr int kRowsPerPass = 32 / kSpan;

  /// The first row and chunk that this thread copies.
  __device__ static int row() { return static_cast<int>(threadIdx.x % 32) / kSpan; }
  __device__ static int chunk() { return static_cast<int>(threadIdx.x % 32) % kSpan; }

  /// Loads the slice from chunk `first_chunk` on of the 32 rows at shared address `rows`, whose
  /// number is a multiple of 8. `from` is what this thread copies first. Rows from `valid_rows` on
  /// and columns from `head_dim` on become 0. The caller commits the copies and waits.
  __device__ __forceinline__ static void load(std::uint32_t rows, int first_chunk,
                                              const std::int8_t* from, std::int64_t stride,
                                              int valid_rows, int head_dim, Alignment alignment) {
    // Rows of a thread differ in bits that its first row has not, so that their XOR does too.
    const int lane_chunk = first_chunk + chunk();
    std::uint32_t to[kChunks / kSpan];
#pragma unroll
    for (int i = 0; i < kChunks / kSpan; ++i) {
      to[i] = rows + Layout::offset(row(), lane_chunk + i * kSpan);
    }
    const auto copy_row = [&](int pass, auto copy) {
#pragma unroll
      for (int i = 0; i < kChunks / kSpan; ++i) {
        const int valid =
            row() + pass < valid_rows ? valid_bytes(head_dim, lane_chunk + i * kSpan) : 0;
        copy((to[i] ^ Layout::xor_of_row(pass) * 16) + pass * kHeadDim, from + 16 * i * kSpan,
             valid);
      }
      from += kRowsPerPass * stride;
    };
    if (alignment != Alignment::bytes_16) {
#pragma unroll 1
      for (int row = 0; row < 32; row += kRowsPerPass) {
        copy_row(row, [alignment](std::uint32_t to, const std::int8_t* chunk, int valid) {
          load_unaligned_chunk(to, chunk, valid, alignment);
        });
      }
    } else if (valid_rows < 32 || head_dim < kHeadDim) {
#pragma unroll 1
      for (int row = 0; row < 32; row += kRowsPerPass) copy_row(row, ptx::cp_async_16);
    } else {
#pragma unroll
      for (int row = 0; row < 32; row += kRowsPerPass) {
        copy_row(row, [](std::uint32_t to, const std::int8_t* chunk, int) {
          ptx::cp_async_whole_16(to, chunk);
        });
      }
    }
  }
};

}  // namespace qattn::cuda::tile
