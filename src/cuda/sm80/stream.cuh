// The stream of K and V tiles through shared memory; V is transposed there.
#pragma once

#include <cstdint>

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/prmt.cuh"
#include "cuda/ptx/st_shared.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/sm80.hpp"
#include "cuda/tile/layout.cuh"
#include "cuda/tile/load.cuh"

namespace qattn::cuda::sm80 {

/// Transposes 32 keys and 16 columns of V where they lie. `block` is the shared address of the
/// chunk of this lane's key, and as the operand of ldmatrix afterwards gives matrices r[2 * odd +
/// half] of even or odd columns and 16 keys, in the key order of tile::Plane. ldmatrix transposes
/// pairs of bytes, two neighbouring columns; prmt separates them. `word` is the address of the
/// bytes of this lane in the first of the matrices.
template <int kHeadDim>
__device__ __forceinline__ void transpose_block(std::uint32_t block, std::uint32_t word) {
  std::uint32_t pairs[4];  // keys 0-7, 8-15, 16-23, 24-31
  ptx::ldmatrix_x4_trans(pairs, block);
  std::uint32_t columns[4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    columns[half] = ptx::prmt(pairs[2 * half], pairs[2 * half + 1], 0x6420);
    columns[2 + half] = ptx::prmt(pairs[2 * half], pairs[2 * half + 1], 0x7531);
  }
#if __CUDA_ARCH__ >= 900
  ptx::stmatrix_x4(block, columns);
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) ptx::st_shared_4(word + 8 * i * kHeadDim, columns[i]);
#endif
}

/// The part of a tile that this thread's warp brings, warps counted from kFirstWarp: 32 keys and
/// kHeadDim / kParts columns.
template <int kHeadDim, int kParts, int kFirstWarp>
struct Slice {
  static constexpr int kColumns = kHeadDim / kParts;
  using Loader = tile::SliceLoader<kHeadDim, kColumns>;
  static constexpr bool kAllWarps = 4 * kParts == Sm80Policy<kHeadDim>::kWarps;
  // So that the first chunk and those within the part have no bits in common.
  static_assert(kParts == 1 || (kColumns & (kColumns - 1)) == 0);

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32 - kFirstWarp; }
  __device__ static bool exists() { return kAllWarps || (warp() >= 0 && warp() < 4 * kParts); }
  __device__ static int first_key() {
    return (kAllWarps && kParts == 1 ? warp() : warp() % 4) * 32;
  }
  __device__ static int first_chunk() { return kParts == 1 ? 0 : warp() / 4 * kColumns / 16; }

  /// What this thread copies first of the first tile of a (batch, kv head) pair.
  __device__ static const std::int8_t* first(const AttentionInput& input, std::int64_t batch,
                                             std::int64_t head_kv) {
    return input.data + batch * input.batch_stride + head_kv * input.head_stride +
           (first_key() + Loader::row()) * input.seq_stride +
           16 * (first_chunk() + Loader::chunk());
  }
};

/// Delivers the tiles of K and V of one (batch, kv head) pair, in turn: keys(0), values(0),
/// keys(1), ... All threads of the block make the same calls. A warp copies slices of 32 keys, or
/// of half their columns, and transposes what it has copied itself: so it need not wait for others.
///
/// With two buffers warps do not wait for each other in step. Two mbarriers carry one arrival a
/// thread and tile (one a warp, by a lane after __syncwarp(), is no faster, and racecheck does not
/// follow it): that its part of the next K has come and K before is free is said before the product
/// with V and asked after it, that its part of V has come and V before is free is said before the
/// product with K and asked after the softmax. So a warp may be most of a product ahead of another,
/// and warps that have become different in phase, one at its products while another is at its
/// softmax, stay so.
template <int kHeadDim>
class KvStream {
  using Policy = Sm80Policy<kHeadDim>;
  using Layout = tile::Layout<kHeadDim>;
  static constexpr std::uint32_t kTileBytes = kGroupKeys * kHeadDim;
  static constexpr int kBuffers = Policy::kBuffers;
  // The first warps copy V, the last K: where there are four or eight, all do both.
  using ValueSlice = Slice<kHeadDim, Policy::kWarps >= 8 ? 2 : 1, 0>;
  using KeySlice = Slice<kHeadDim, Policy::kWarps == 8 ? 2 : 1, Policy::kWarps == 12 ? 8 : 0>;
  static_assert(Policy::kWarps == 4 || Policy::kWarps == 8 || Policy::kWarps == 12);

 public:
  /// `shared` has Policy::kStreamBytes.
  __device__ KvStream(const AttentionParams& params, std::uint32_t shared, std::int64_t batch,
                      std::int64_t head_kv, int tiles)
      : params_(params),
        k_(KeySlice::first(params.k, batch, head_kv)),
        v_(ValueSlice::first(params.v, batch, head_kv)),
        shared_(shared),
        tiles_(tiles) {}

  /// Starts the first copies. What the caller has copied before and not committed joins them, and
  /// is there for all threads after keys(0).
  __device__ void start() {
    copy_keys(0);
    if constexpr (kBuffers == 2) {
      copy_values(0);
      if (threadIdx.x == 0) {
        ptx::mbarrier_init(keys_barrier(), Policy::kThreads);
        ptx::mbarrier_init(values_barrier(), Policy::kThreads);
      }
      __syncthreads();
      ptx::cp_async_wait<1>();
      ptx::mbarrier_arrive(keys_barrier());
    }
  }

  /// Waits for the keys of tile `index` and returns their shared address. They stay until
  /// values(index).
  __device__ std::uint32_t keys(int index) {
    ptx::cp_async_wait<0>();
    if constexpr (kBuffers == 2) {
      transpose(index);
      ptx::mbarrier_arrive(values_barrier());
      ptx::mbarrier_wait(keys_barrier(), index & 1);
      copy_keys(index + 1);
    } else {
      synchronise();
      copy_values(index);
    }
    return k_tile(index);
  }

  /// The same for the values, transposed. They stay until keys(index + 1).
  __device__ std::uint32_t values(int index) {
    ptx::cp_async_wait<0>();
    if constexpr (kBuffers == 2) {
      ptx::mbarrier_arrive(keys_barrier());
      ptx::mbarrier_wait(values_barrier(), index & 1);
      copy_values(index + 1);
    } else {
      transpose(index);
      synchronise();
      copy_keys(index + 1);
    }
    return v_tile(index);
  }

 private:
  __device__ std::uint32_t k_tile(int index) const {
    return shared_ + index % kBuffers * kTileBytes;
  }
  __device__ std::uint32_t v_tile(int index) const {
    return shared_ + (kBuffers + index % kBuffers) * kTileBytes;
  }
  __device__ std::uint32_t keys_barrier() const { return shared_ + 2 * kBuffers * kTileBytes; }
  __device__ std::uint32_t values_barrier() const { return keys_barrier() + 8; }

  // Tile by tile, each once.
  __device__ void copy_keys(int index) {
    copy<KeySlice>(params_.k, k_, k_tile(index), index);
    ptx::cp_async_commit();
  }
  __device__ void copy_values(int index) {
    copy<ValueSlice>(params_.v, v_, v_tile(index), index);
    ptx::cp_async_commit();
  }

  /// Not __syncthreads(): warps may come from different places in the code.
  __device__ static void synchronise() { ptx::barrier_sync<Policy::kThreads>(1); }

  template <typename Slice>
  __device__ __forceinline__ void copy(const AttentionInput& input, const std::int8_t*& from,
                                       std::uint32_t tile, int index) {
    if (index >= tiles_ || !Slice::exists()) return;
    Slice::Loader::load(tile + Slice::first_key() * kHeadDim, Slice::first_chunk(), from,
                        input.seq_stride, params_.seq_k - index * kGroupKeys - Slice::first_key(),
                        params_.head_dim, input.alignment);
    from += kGroupKeys * input.seq_stride;
  }

  /// What this thread's warp has copied.
  __device__ __forceinline__ void transpose(int index) {
    if (!ValueSlice::exists()) return;
    __syncwarp();
    const int lane = static_cast<int>(threadIdx.x % 32);
    const std::uint32_t slice = v_tile(index) + ValueSlice::first_key() * kHeadDim;
    const int first_chunk = ValueSlice::first_chunk();
    const std::uint32_t block = Layout::advance(slice + Layout::offset(lane, 0), first_chunk);
    const std::uint32_t word =
        Layout::advance(slice + Layout::offset(lane / 4, 0) + lane % 4 * 4, first_chunk);
#pragma unroll
    for (int chunk = 0; chunk < ValueSlice::kColumns / 16; ++chunk) {
      transpose_block<kHeadDim>(Layout::advance(block, chunk), Layout::advance(word, chunk));
    }
  }

  const AttentionParams& params_;
  const std::int8_t* k_;  // what this thread copies next
  const std::int8_t* v_;
  std::uint32_t shared_;
  int tiles_;
};

}  // namespace qattn::cuda::sm80
