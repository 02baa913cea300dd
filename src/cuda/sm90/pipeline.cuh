// Rings of tiles between the producer and the consumers of a block.
#pragma once

#include <cstdint>

#include "cuda/ptx/mbarrier.cuh"

namespace qattn::cuda::sm90 {

/// Barriers of a ring of kSlots tiles, in shared memory.
template <int kSlots>
struct Ring {
  std::uint64_t full[kSlots];
  std::uint64_t empty[kSlots];

  /// One thread of the block.
  __device__ void init(std::uint32_t full_arrivals, std::uint32_t empty_arrivals) {
    for (int slot = 0; slot < kSlots; ++slot) {
      ptx::mbarrier_init(&full[slot], full_arrivals);
      ptx::mbarrier_init(&empty[slot], empty_arrivals);
    }
  }
};

/// A thread's place in a ring.
template <int kSlots>
struct Position {
  int slot = 0;
  std::uint32_t parity = 0;

  template <int kCount>
  __device__ Position ahead() const {
    Position position = *this;
    for (int i = 0; i < kCount; ++i) position.advance();
    return position;
  }
  __device__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1U;
    }
  }
};

/// One arrival for the whole warp, after the work of all of its threads.
__device__ __forceinline__ void arrive_warp(std::uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
}

}  // namespace qattn::cuda::sm90
