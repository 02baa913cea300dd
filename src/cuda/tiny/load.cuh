// Global memory to a warp's own tiles in shared memory, at any alignment.
#pragma once

#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/tile/layout.cuh"
#include "cuda/tile/load.cuh"
#include "cuda/tile/scheduler.cuh"
#include "cuda/tiny/group.cuh"
#include "cuda/tiny/policy.hpp"
#include "cuda/tiny/rows.cuh"

namespace qattn::cuda::tiny {

/// A warp's own tiles, as shared addresses.
struct Tiles {
  std::uint32_t k;
  std::uint32_t q;
  std::uint32_t v;
};

/// Where the rows of a warp's tiles come from. What lies behind the last query or key is left as it
/// is in shared memory: no result depends on it.
struct Sources {
  const AttentionParams& params;
  const tile::BlockWork& work;
  const std::int8_t* q;
  const std::int8_t* k;
  const std::int8_t* v;
  int first_key;  // of row 0

  __device__ Sources(const AttentionParams& p, const tile::BlockWork& w, int warp)
      : params(p),
        work(w),
        q(p.q.data + w.batch * p.q.batch_stride + w.head_kv * w.group_size * p.q.head_stride),
        k(p.k.data + w.batch * p.k.batch_stride + w.head_kv * p.k.head_stride),
        v(p.v.data + w.batch * p.v.batch_stride + w.head_kv * p.v.head_stride),
        first_key(key_in_group(warp, 0)) {}

  __device__ int key(int row) const { return first_key + key_in_group(0, row); }
  __device__ bool has_key(int row) const { return key(row) < params.seq_k; }
  __device__ const std::int8_t* k_row(int row) const {
    return k + distance(static_cast<std::uint32_t>(key(row)), params.k.seq_stride);
  }
  __device__ const std::int8_t* v_row(int row) const {
    return v + distance(static_cast<std::uint32_t>(key(row)), params.v.seq_stride);
  }
  __device__ bool has_query(int row) const { return row < work.rows; }
  __device__ const std::int8_t* q_row(int row) const {
    const tile::RowPlace place = work.place(row);
    return q + distance(static_cast<std::uint32_t>(place.query), params.q.seq_stride) +
           place.head_in_group * params.q.head_stride;
  }
};

/// Calls `copy(row, chunk, offset in the tile)` for a lane's share of the chunks of a tile.
template <int kHeadDim, int kRows, typename Copy>
__device__ __forceinline__ void for_chunks_of_lane(int lane, Copy copy) {
  using Layout = tile::Layout<kHeadDim>;
#pragma unroll
  for (int i = lane; i < kRows * Layout::kChunks; i += 32) {
    const int row = i / Layout::kChunks;
    const int chunk = i % Layout::kChunks;
    copy(row, chunk, Layout::offset(row, chunk));
  }
}

/// One chunk of a row of any alignment and head_dim; columns from head_dim on become 0.
__device__ __forceinline__ void load_any_chunk(std::uint32_t to, const std::int8_t* row, int chunk,
                                               int head_dim, Alignment alignment) {
  const int valid = tile::valid_bytes(head_dim, chunk);
  if (alignment == Alignment::bytes_16) {
    ptx::cp_async_16(to, row + 16 * chunk, valid);
  } else {
    tile::load_unaligned_chunk(to, row + 16 * chunk, valid, alignment);
  }
}

/// Starts the copies of the queries and keys, then of the values, as two groups. The caller waits
/// for them and synchronises the warp.
template <int kHeadDim>
__device__ __forceinline__ void load_tiles(const Sources& from, const Tiles& tiles, int lane) {
  using Policy = TinyPolicy<kHeadDim>;
  const AttentionParams& params = from.params;
  const bool whole_chunks =
      params.q.alignment == Alignment::bytes_16 && params.k.alignment == Alignment::bytes_16 &&
      params.v.alignment == Alignment::bytes_16 && params.head_dim == kHeadDim;
  if (whole_chunks) {
    for_chunks_of_lane<kHeadDim, Policy::kKeys>(lane, [&](int row, int chunk, int offset) {
      ptx::cp_async_16_if(from.has_key(row), tiles.k + offset, from.k_row(row) + 16 * chunk);
    });
    for_chunks_of_lane<kHeadDim, Policy::kRows>(lane, [&](int row, int chunk, int offset) {
      ptx::cp_async_16_if(from.has_query(row), tiles.q + offset, from.q_row(row) + 16 * chunk);
    });
    ptx::cp_async_commit();
    for_chunks_of_lane<kHeadDim, Policy::kKeys>(lane, [&](int row, int chunk, int offset) {
      ptx::cp_async_16_if(from.has_key(row), tiles.v + offset, from.v_row(row) + 16 * chunk);
    });
    ptx::cp_async_commit();
    return;
  }
  using Layout = tile::Layout<kHeadDim>;
#pragma unroll 1
  for (int i = lane; i < Policy::kKeys * Layout::kChunks; i += 32) {
    const int row = i / Layout::kChunks;
    const int chunk = i % Layout::kChunks;
    const int offset = Layout::offset(row, chunk);
    if (from.has_key(row)) {
      load_any_chunk(tiles.k + offset, from.k_row(row), chunk, params.head_dim, params.k.alignment);
      load_any_chunk(tiles.v + offset, from.v_row(row), chunk, params.head_dim, params.v.alignment);
    }
    if (row < Policy::kRows && from.has_query(row)) {
      load_any_chunk(tiles.q + offset, from.q_row(row), chunk, params.head_dim, params.q.alignment);
    }
  }
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();  // the caller's count of groups is that of the other way
  ptx::cp_async_commit();
}

}  // namespace qattn::cuda::tiny
