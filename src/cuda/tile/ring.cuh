// The stream of K and V tiles through shared memory.
#pragma once

#include <cstdint>

#include "cuda/ptx/cp_async.cuh"
#include "cuda/tile/load.cuh"

namespace qattn::cuda::tile {

/// Delivers the tiles K0, V0, K1, V1, ... of one (batch, kv head) pair, kSlots - 1 tiles ahead. All
/// threads of the block make the same calls.
template <int kHeadDim>
class KvRing {
  using Policy = Sm80Policy<kHeadDim>;
  static constexpr std::uint32_t kTileBytes = kGroupKeys * kHeadDim;

 public:
  __device__ KvRing(const AttentionParams& params, std::uint32_t shared, std::int64_t batch,
                    std::int64_t head_kv, int tiles)
      : params_(params),
        k_(params.k.data + batch * params.k.batch_stride + head_kv * params.k.head_stride),
        v_(params.v.data + batch * params.v.batch_stride + head_kv * params.v.head_stride),
        begin_(shared),
        fill_(shared),
        read_(shared),
        units_(2 * tiles) {}

  /// Starts the first copies. What the caller has copied before and not committed joins the first.
  __device__ void start() {
    for (int i = 0; i < Policy::kSlots - 1; ++i) fill_next();
  }

  /// Waits for the next tile and returns its shared address. Frees the tile taken before: no thread
  /// gets past this call while another still reads that one.
  __device__ std::uint32_t take() {
    ptx::cp_async_wait<Policy::kSlots - 2>();
    __syncthreads();
    fill_next();
    const std::uint32_t tile = read_;
    read_ = after(read_);
    return tile;
  }

 private:
  __device__ std::uint32_t after(std::uint32_t slot) const {
    return slot == begin_ + (Policy::kSlots - 1) * kTileBytes ? begin_ : slot + kTileBytes;
  }

  __device__ void fill_next() {
    if (unit_ < units_) {
      const bool is_v = (unit_ & 1) != 0;
      const AttentionInput& input = is_v ? params_.v : params_.k;
      const std::int64_t stride = input.seq_stride;
      const int first_key = unit_ / 2 * kGroupKeys;
      const std::int8_t* base = is_v ? v_ : k_;
      const std::int8_t* tile = base + first_key * stride;
      load_rows<kHeadDim, kGroupKeys, Policy::kThreads>(
          fill_, params_.seq_k - first_key, params_.head_dim, input.alignment,
          [tile, stride](int row) { return tile + row * stride; });
      fill_ = after(fill_);
      ++unit_;
    }
    // Also past the end: take() counts groups.
    ptx::cp_async_commit();
  }

  const AttentionParams& params_;
  const std::int8_t* k_;
  const std::int8_t* v_;
  std::uint32_t begin_;
  std::uint32_t fill_;
  std::uint32_t read_;
  int unit_ = 0;
  int units_;
};

}  // namespace qattn::cuda::tile
