// A consumer's end of the rings.
#pragma once

#include <cstdint>

#include "cuda/ptx/barrier.cuh"
#include "cuda/sm90/shared.cuh"

namespace qattn::cuda::sm90 {

/// Tiles in the order in which the producer delivers them. All threads of a consumer warpgroup make
/// the same calls.
template <typename Policy>
class Stream {
 public:
  __device__ Stream(const Shared<Policy>& shared, int warpgroup)
      : shared_(shared), warpgroup_(warpgroup) {}

  __device__ int warpgroup() const { return warpgroup_; }

  /// Waits for the rows of the next block of rows; their address.
  __device__ std::uint32_t wait_q() const {
    ptx::mbarrier_wait(&shared_.rings().q.full[q_.slot], q_.parity);
    return shared_.q_tile(q_.slot, warpgroup_);
  }
  __device__ void release_q() {
    arrive_warp(&shared_.rings().q.empty[q_.slot]);
    q_.advance();
  }

  /// Waits for the next tile of K; its address, also again until it is released.
  __device__ std::uint32_t wait_k() const {
    ptx::mbarrier_wait(&shared_.rings().k.full[k_.slot], k_.parity);
    return shared_.k_tile(k_.slot);
  }
  __device__ void release_k() {
    arrive_warp(&shared_.rings().k.empty[k_.slot]);
    k_.advance();
  }

  __device__ std::uint32_t wait_v() const {
    ptx::mbarrier_wait(&shared_.rings().v.full[v_.slot], v_.parity);
    return shared_.v_tile(v_.slot);
  }
  __device__ void release_v() {
    arrive_warp(&shared_.rings().v.empty[v_.slot]);
    v_.advance();
  }

  /// True for all threads of the warpgroup if `value` is for any.
  __device__ bool any(bool value) const { return ptx::barrier_any<128>(kAny + warpgroup_, value); }

  /// A tile of which no row of the warpgroup sees a key.
  __device__ void skip_tile() {
    wait_k();
    release_k();
    wait_v();
    release_v();
  }

 private:
  static constexpr int kAny = 1;  // first of the named barriers; 0 is the block's

  const Shared<Policy>& shared_;
  int warpgroup_;
  Position<Policy::kQuerySlots> q_;
  Position<Policy::kKeySlots> k_;
  Position<Policy::kValueSlots> v_;
};

}  // namespace qattn::cuda::sm90
