// Which blocks of rows a thread block computes, one after another.
#pragma once

#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/tile/scheduler.cuh"

namespace qattn::cuda::sm90 {

/// A grid of as many blocks as the device runs at once takes the blocks of rows in turns, longest
/// first: so the loads of one overlap the end of the one before. Every other turn goes backwards,
/// so that who got the longest of one gets the shortest of the next: under a causal mask the work
/// of all is even, within 0.3 % for 16 heads of 16384 keys where turns in one direction leave 6 %.
/// Producer and consumers go through it alike.
template <typename Policy>
class Schedule {
 public:
  __device__ explicit Schedule(const AttentionParams& params)
      : params_(params), count_(params.pairs * params.row_blocks), index_(blockIdx.x) {
    enter();
  }

  __device__ bool valid() const { return index_ < count_; }
  __device__ const tile::BlockWork& work() const { return work_; }
  /// Tiles of keys that some row of the block sees.
  __device__ int tiles() const { return tiles_; }

  __device__ void advance() {
    const std::uint32_t place = index_ % gridDim.x;
    index_ += 2 * (gridDim.x - place) - 1;
    enter();
  }

  /// Moves on to the next block of rows that sees a key; false if there is none.
  __device__ bool skip_empty() {
    while (valid() && tiles_ == 0) advance();
    return valid();
  }

 private:
  __device__ void enter() {
    if (!valid()) return;
    work_ = tile::block_work<Policy::kRows>(params_, index_);
    const int limit = tile::visible_keys(params_, work_.place(work_.rows - 1).query);
    tiles_ = limit == 0 ? 0 : (limit - 1) / Policy::kKeys + 1;
  }

  const AttentionParams& params_;
  std::uint32_t count_;
  std::uint32_t index_;
  tile::BlockWork work_;
  int tiles_ = 0;
};

}  // namespace qattn::cuda::sm90
