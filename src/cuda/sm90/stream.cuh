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
      : shared_(shared),
        warpgroup_(warpgroup),
        warp_(__shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32 % 4, 0)),
        turn_parity_(warpgroup == 0 ? 1U : 0U) {}

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

  /// Waits for the tile of K that comes kAhead after the next; its address.
  template <int kAhead>
  __device__ std::uint32_t wait_k() const {
    const auto at = k_.template ahead<kAhead>();
    ptx::mbarrier_wait(&shared_.rings().k.full[at.slot], at.parity);
    return shared_.k_tile(at.slot);
  }
  template <int kTiles>
  __device__ void release_k() {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      arrive_warp(&shared_.rings().k.empty[k_.slot]);
      k_.advance();
    }
  }

  /// The same for V.
  template <int kAhead>
  __device__ std::uint32_t wait_v() const {
    const auto at = v_.template ahead<kAhead>();
    ptx::mbarrier_wait(&shared_.rings().v.full[at.slot], at.parity);
    return shared_.v_tile(at.slot);
  }
  template <int kTiles>
  __device__ void release_v() {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      arrive_warp(&shared_.rings().v.empty[v_.slot]);
      v_.advance();
    }
  }

  /// A tile of which no row of the warpgroup sees a key.
  __device__ void skip_tile() {
    wait_k<0>();
    release_k<1>();
    wait_v<0>();
    release_v<1>();
  }

  /// True for all threads of the warpgroup if `value` is for any.
  __device__ bool any(bool value) const {
    // The vote makes it known to be the same for all threads of a warp.
    return __any_sync(0xFFFFFFFFU, ptx::barrier_any<128>(kAny + warpgroup_, value)) != 0;
  }

  /// Waits until it is this warp's turn among those of its scheduler, one of each warpgroup.
  /// Returns 0, known only then.
  __device__ std::int32_t take_turn() {
    if constexpr (!Policy::kTurns) return 0;
    const std::int32_t zero =
        ptx::mbarrier_wait_zero(&shared_.rings().turn[warpgroup_][warp_], turn_parity_);
    turn_parity_ ^= 1U;
    return zero;
  }
  /// Hands the turn on. `zero` is 0, known only when what the turn was for is done.
  __device__ void pass_turn(std::int32_t zero) const {
    if constexpr (!Policy::kTurns) return;
    const int next = (warpgroup_ + 1) % Policy::kConsumers;
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared_.rings().turn[next][warp_] + zero);
  }

 private:
  static constexpr int kAny = 1;  // first of the named barriers; 0 is the block's

  const Shared<Policy>& shared_;
  int warpgroup_;
  int warp_;                   // of the warpgroup; the same for all its threads, and known to be
  std::uint32_t turn_parity_;  // the first turn is the first warpgroup's
  Position<Policy::kQuerySlots> q_;
  Position<Policy::kKeySlots> k_;
  Position<Policy::kValueSlots> v_;
};

}  // namespace qattn::cuda::sm90
