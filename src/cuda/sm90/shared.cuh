// A block's shared memory.
#pragma once

#include <cstdint>

#include "cuda/sm90.hpp"
#include "cuda/sm90/pipeline.cuh"

namespace qattn::cuda::sm90 {

/// Where the tiles and barriers of a block lie.
template <typename Policy>
class Shared {
 public:
  using QRing = Ring<Policy::kQuerySlots>;
  using KRing = Ring<Policy::kKeySlots>;
  using RawRing = Ring<Policy::kRawSlots>;
  using VRing = Ring<Policy::kValueSlots>;

  /// Barriers of all rings.
  struct Rings {
    QRing q;
    KRing k;
    RawRing raw;  // bulk copies only: else every producer warp waits for its own copies
    VRing v;
    std::uint64_t turn[Policy::kConsumers][4];  // of each warp of a consumer
  };
  static_assert(sizeof(Rings) <= Policy::kBarrierBytes);

  /// `begin` is a multiple of 1024 in the shared window.
  __device__ explicit Shared(unsigned char* begin)
      : begin_(begin), address_(static_cast<std::uint32_t>(__cvta_generic_to_shared(begin))) {}

  /// One thread of the block, before all others use a barrier. Arrivals are counted by warps; a
  /// bulk copy arrives once.
  __device__ void init(bool bulk) const {
    constexpr std::uint32_t kProducerWarps = 4;
    constexpr std::uint32_t kConsumerWarps = 4 * Policy::kConsumers;
    rings().q.init(kProducerWarps, kConsumerWarps);
    rings().k.init(bulk ? 1 : kProducerWarps, kConsumerWarps);
    rings().raw.init(1, kProducerWarps);
    rings().v.init(kProducerWarps, kConsumerWarps);
    for (auto& of_warpgroup : rings().turn) {
      for (std::uint64_t& turn : of_warpgroup) ptx::mbarrier_init(&turn, 1);
    }
    ptx::mbarrier_init_done();
  }

  /// The rows of one consumer.
  __device__ std::uint32_t q_tile(int slot, int warpgroup) const {
    return address_ + slot * Policy::kQueryBytes +
           warpgroup * (Policy::kQueryBytes / Policy::kConsumers);
  }
  __device__ std::uint32_t k_tile(int slot) const {
    return address_ + kKeyOffset + slot * Policy::kTileBytes;
  }
  /// V as it lies in global memory.
  __device__ std::uint32_t raw_v_tile(int slot) const {
    return address_ + kRawOffset + slot * Policy::kTileBytes;
  }
  /// V as the second product reads it.
  __device__ std::uint32_t v_tile(int slot) const {
    return address_ + kValueOffset + slot * Policy::kTileBytes;
  }
  __device__ Rings& rings() const { return *reinterpret_cast<Rings*>(begin_ + kBarrierOffset); }

 private:
  static constexpr int kKeyOffset = Policy::kQuerySlots * Policy::kQueryBytes;
  static constexpr int kRawOffset = kKeyOffset + Policy::kKeySlots * Policy::kTileBytes;
  static constexpr int kValueOffset = kRawOffset + Policy::kRawSlots * Policy::kTileBytes;
  static constexpr int kBarrierOffset = kValueOffset + Policy::kValueSlots * Policy::kTileBytes;

  unsigned char* begin_;
  std::uint32_t address_;
};

}  // namespace qattn::cuda::sm90
