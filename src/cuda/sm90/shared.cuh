// A block's shared memory.
#pragma once

#include <cstdint>

#include "cuda/sm90.hpp"
#include "cuda/sm90/layout.cuh"
#include "cuda/sm90/pipeline.cuh"
#include "cuda/sm90/products.cuh"

namespace qattn::cuda::sm90 {

/// Where the tiles and barriers of a block lie.
template <int kHeadDim>
class Shared {
  using Policy = Sm90Policy<kHeadDim>;
  static constexpr std::uint32_t kQBytes = 64 * kHeadDim;
  static constexpr std::uint32_t kTileBytes = kGroupKeys * kHeadDim;

 public:
  using KRing = Ring<Policy::kKeySlots>;
  using VRing = Ring<Policy::kValueSlots>;
  static_assert(sizeof(KRing) + sizeof(VRing) <= Policy::kBarrierBytes);

  /// `begin` is a multiple of 1024 in the shared window.
  __device__ explicit Shared(unsigned char* begin)
      : begin_(begin), address_(static_cast<std::uint32_t>(__cvta_generic_to_shared(begin))) {}

  __device__ std::uint32_t q_tile(int warpgroup) const { return address_ + warpgroup * kQBytes; }
  __device__ std::uint32_t k_tile(int slot) const { return tile(slot); }
  /// V as it lies in global memory.
  __device__ std::uint32_t raw_v_tile(int slot) const { return tile(Policy::kKeySlots + slot); }
  /// TransposedV.
  __device__ std::uint32_t v_tile(int slot) const { return tile(Policy::kKeySlots + 2 + slot); }
  __device__ KRing& k_ring() const { return *reinterpret_cast<KRing*>(barriers()); }
  __device__ VRing& v_ring() const { return *reinterpret_cast<VRing*>(barriers() + sizeof(KRing)); }

 private:
  __device__ std::uint32_t tile(int index) const {
    return address_ + Policy::kConsumers * kQBytes + static_cast<std::uint32_t>(index) * kTileBytes;
  }
  __device__ unsigned char* barriers() const { return begin_ + Policy::kTileBytes; }

  unsigned char* begin_;
  std::uint32_t address_;
};

}  // namespace qattn::cuda::sm90
