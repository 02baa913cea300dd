// The producer warpgroup: brings Q, K and V into shared memory, puts V into the form that is
// multiplied.
#pragma once

#include <cstdint>

#include "cuda/ptx/bulk_copy.cuh"
#include "cuda/ptx/fence_proxy.cuh"
#include "cuda/sm90/layout.cuh"
#include "cuda/sm90/load.cuh"
#include "cuda/sm90/schedule.cuh"
#include "cuda/sm90/shared.cuh"
#include "cuda/sm90/values.cuh"

namespace qattn::cuda::sm90 {

/// The tiles that a block needs, block of rows after block of rows, from the last keys to the
/// first.
template <typename Policy>
class Producer {
  static constexpr int kHeadDim = Policy::kHeadDim;
  using KvTile = Tile<kHeadDim, Policy::kKeys>;
  // A warp loads and transposes the same part of a tile of V, so that the warps need not wait for
  // each other: 32 keys, as transposing needs them, of one or all blocks of columns.
  static constexpr int kBlockParts = Policy::kKeys == 64 ? 2 : 1;
  static constexpr int kKeyParts = 4 / kBlockParts;
  static constexpr int kPartKeys = Policy::kKeys / kKeyParts;
  static constexpr int kPartBlocks = KvTile::kBlocks / kBlockParts;
  static_assert(kPartBlocks * kBlockParts == KvTile::kBlocks);

 public:
  __device__ Producer(const AttentionParams& params, const Shared<Policy>& shared)
      : params_(params),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / 32 % 4),
        part_{warp_ % kKeyParts * kPartKeys, warp_ / kKeyParts * kPartBlocks} {}

  __device__ void run() {
    if (params_.bulk) {
      run_bulk();
    } else {
      run_copies();
    }
  }

 private:
  /// K and V by the tensor copy engine: one tile is on its way while the one before is transformed.
  __device__ void run_bulk() {
    bool pending = false;
    bool pending_first = false;
    Schedule<Policy> schedule(params_);
    while (schedule.skip_empty() || pending) {
      const bool more = schedule.valid();
      const bool first = more && tile_ == 0;
      if (more) {
        if (threadIdx.x % 128 == 0) copy_keys_and_values(schedule);
        __syncwarp();
        if (first) load_q(schedule.work());
      }
      if (pending) {
        if (pending_first) deliver_q();
        ptx::mbarrier_wait(&shared_.rings().raw.full[raw_ready_.slot], raw_ready_.parity);
        transform_values();
        arrive_warp(&shared_.rings().raw.empty[raw_ready_.slot]);
        raw_ready_.advance();
      }
      pending = more;
      pending_first = first;
      if (more) advance(schedule);
    }
  }

  /// K and V by the copies of all threads, at any alignment.
  __device__ void run_copies() {
    bool pending = false;
    bool pending_first = false;
    Schedule<Policy> schedule(params_);
    while (schedule.skip_empty() || pending) {
      const bool more = schedule.valid();
      const bool first = more && tile_ == 0;
      // Every tile is two groups of copies, K and V; past the end they are empty, since waits
      // count.
      if (more) {
        if (first) load_q(schedule.work());
        ptx::mbarrier_wait(&shared_.rings().k.empty[k_.slot], k_.parity ^ 1U);
        load_kv(params_.k, schedule, shared_.k_tile(k_.slot));
        k_.advance();
      }
      ptx::cp_async_commit();
      if (more) {
        load_kv(params_.v, schedule, shared_.raw_v_tile(raw_.slot));
        raw_.advance();
      }
      ptx::cp_async_commit();
      if (pending) {
        ptx::cp_async_wait<3>();
        if (pending_first) deliver_q();
        ptx::fence_proxy_async();
        arrive_warp(&shared_.rings().k.full[k_ready_.slot]);
        k_ready_.advance();
        ptx::cp_async_wait<2>();
        __syncwarp();
        transform_values();
        raw_ready_.advance();
      }
      pending = more;
      pending_first = first;
      if (more) advance(schedule);
    }
  }

  __device__ void advance(Schedule<Policy>& schedule) {
    if (++tile_ < schedule.tiles()) return;
    tile_ = 0;
    schedule.advance();
  }

  __device__ std::int64_t first_key(const Schedule<Policy>& schedule) const {
    return static_cast<std::int64_t>(schedule.tiles() - 1 - tile_) * Policy::kKeys;
  }

  /// One thread: a tile of K and of V, as soon as there is room.
  __device__ void copy_keys_and_values(const Schedule<Policy>& schedule) {
    auto& rings = shared_.rings();
    ptx::mbarrier_wait(&rings.k.empty[k_.slot], k_.parity ^ 1U);
    copy_tile(params_.k_map, schedule, shared_.k_tile(k_.slot), &rings.k.full[k_.slot]);
    k_.advance();
    ptx::mbarrier_wait(&rings.raw.empty[raw_.slot], raw_.parity ^ 1U);
    copy_tile(params_.v_map, schedule, shared_.raw_v_tile(raw_.slot), &rings.raw.full[raw_.slot]);
    raw_.advance();
  }

  __device__ void copy_tile(const TensorMap& map, const Schedule<Policy>& schedule,
                            std::uint32_t tile, std::uint64_t* full) {
    ptx::mbarrier_arrive_expect(full, Policy::kTileBytes);
    std::int32_t at[4] = {0, static_cast<std::int32_t>(schedule.work().head_kv),
                          static_cast<std::int32_t>(first_key(schedule)),
                          static_cast<std::int32_t>(schedule.work().batch)};
#pragma unroll
    for (int block = 0; block < KvTile::kBlocks; ++block) {
      at[0] = block * KvTile::kSpanBytes;
      ptx::bulk_copy_4d(tile + block * KvTile::kBlockBytes, &map, at, full);
    }
  }

  __device__ void load_q(const tile::BlockWork& work) {
    ptx::mbarrier_wait(&shared_.rings().q.empty[q_.slot], q_.parity ^ 1U);
    const std::int8_t* base =
        params_.q.data + work.batch * params_.q.batch_stride +
        static_cast<std::int64_t>(work.head_kv) * params_.group_size * params_.q.head_stride;
#pragma unroll 1
    for (int first_row = 16 * warp_; first_row < Policy::kRows; first_row += 64) {
      using QTile = Tile<kHeadDim, 64>;
      load_part<QTile, 16, QTile::kBlocks>(
          shared_.q_tile(q_.slot, first_row / 64), {first_row % 64, 0},
          work.rows - first_row / 64 * 64, params_.head_dim, params_.q.alignment, [&](int row) {
            const tile::RowPlace place = work.place(first_row / 64 * 64 + row);
            return base + place.query * params_.q.seq_stride +
                   place.head_in_group * params_.q.head_stride;
          });
    }
    q_.advance();
  }

  __device__ void load_kv(const AttentionInput& input, const Schedule<Policy>& schedule,
                          std::uint32_t tile) {
    const tile::BlockWork& work = schedule.work();
    const std::int64_t first = first_key(schedule);
    const std::int64_t stride = input.seq_stride;
    const std::int8_t* from = input.data + work.batch * input.batch_stride +
                              work.head_kv * input.head_stride + first * stride;
    load_part<KvTile, kPartKeys, kPartBlocks>(
        tile, part_, params_.seq_k - static_cast<int>(first), params_.head_dim, input.alignment,
        [from, stride](int row) { return from + row * stride; });
  }

  /// Hands the rows over once this thread's copies of them have arrived.
  __device__ void deliver_q() {
    if (params_.bulk) ptx::cp_async_wait_all();
    ptx::fence_proxy_async();
    arrive_warp(&shared_.rings().q.full[q_ready_.slot]);
    q_ready_.advance();
  }

  /// Puts the warp's part of the next tile of V, which has arrived, into the form that is
  /// multiplied.
  __device__ void transform_values() {
    ptx::mbarrier_wait(&shared_.rings().v.empty[v_.slot], v_.parity ^ 1U);
    const std::uint32_t to = shared_.v_tile(v_.slot);
    const std::uint32_t from = shared_.raw_v_tile(raw_ready_.slot);
    transpose_values<kHeadDim, Policy::kKeys, kPartBlocks * KvTile::kSpan>(
        to, from, part_.first_row, part_.first_block * KvTile::kSpan);
    ptx::fence_proxy_async();
    arrive_warp(&shared_.rings().v.full[v_.slot]);
    v_.advance();
  }

  const AttentionParams& params_;
  const Shared<Policy>& shared_;
  int warp_;
  TilePart part_;
  int tile_ = 0;  // of the current block of rows, in the order of delivery
  Position<Policy::kQuerySlots> q_;
  Position<Policy::kQuerySlots> q_ready_;
  Position<Policy::kKeySlots> k_;
  Position<Policy::kKeySlots> k_ready_;
  Position<Policy::kRawSlots> raw_;
  Position<Policy::kRawSlots> raw_ready_;
  Position<Policy::kValueSlots> v_;
};

}  // namespace qattn::cuda::sm90
