// The stream of a split's K and V through shared memory.
#pragma once

#include <cstdint>

#include "cuda/decode/work.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/tile/load.cuh"

namespace qattn::cuda::decode {

/// Shared addresses of the keys or values of a group: of the first 64 and of the others.
struct GroupTile {
  std::uint32_t half[2];

  /// Of row `row`, a multiple of 16, in tiles of kHeadDim bytes a row.
  template <int kHeadDim>
  __device__ std::uint32_t rows(int row) const {
    return (row < 64 ? half[0] : half[1]) + static_cast<std::uint32_t>(row % 64 * kHeadDim);
  }
};

/// Where a thread copies from: its 16 bytes of the stream's next rows. Pointers move from row to
/// row, so that a copy costs an addition; most of a block's instructions were addresses before.
class SplitStream {
 public:
  /// `row` is the thread's first row, `rows` from one of its rows to the next.
  __device__ SplitStream(const AttentionInput& input, const SplitWork& work, int row, int chunk,
                         int rows)
      : from_(first_row(input, work) + row * input.seq_stride + 16 * chunk),
        step_(rows * input.seq_stride) {}

  __device__ static const std::int8_t* first_row(const AttentionInput& input,
                                                 const SplitWork& work) {
    return input.data + work.rows.batch * input.batch_stride +
           work.rows.head_kv * input.head_stride + work.first_key * input.seq_stride;
  }

  __device__ const std::int8_t* next() {
    const std::int8_t* from = from_;
    from_ += step_;
    return from;
  }

 private:
  const std::int8_t* from_;
  std::int64_t step_;
};

/// Delivers K0, V0, K1, V1, ... of a split, in half groups. All threads of the block make the same
/// calls.
template <int kHeadDim, typename Policy>
class SplitRing {
  using Layout = tile::Layout<kHeadDim>;
  // Threads and rows as in tile::load_rows().
  static constexpr int kRowsPerPass = Policy::kThreads / Layout::kSpan;
  static constexpr int kPasses = Policy::kSlotKeys / kRowsPerPass;
  static_assert(kRowsPerPass % 8 == 0 && Policy::kSlotKeys % kRowsPerPass == 0);
  static_assert(Policy::kSlots >= 4);

 public:
  __device__ SplitRing(const AttentionParams& params, std::uint32_t shared, const SplitWork& work)
      : params_(params),
        work_(work),
        k_(params.k, work, thread_row(), thread_chunk(), kRowsPerPass),
        v_(params.v, work, thread_row(), thread_chunk(), kRowsPerPass),
        units_(4 * work.tiles),
        begin_(shared),
        fill_(shared),
        read_(shared) {}

  /// Starts the first copies. What the caller has copied before and not committed joins the first.
  __device__ void start() { fill<Policy::kSlots - 2>(); }

  /// Waits for the next two halves. Frees those taken before: no thread gets past this call while
  /// another still reads them.
  __device__ GroupTile take() {
    // kSlots - 2 halves have been asked for and not been taken; all but these two may be pending.
    ptx::cp_async_wait<Policy::kSlots - 4>();
    __syncthreads();
    fill<2>();
    GroupTile tile;
#pragma unroll
    for (std::uint32_t& half : tile.half) {
      half = read_;
      read_ = after(read_);
    }
    return tile;
  }

 private:
  __device__ static int thread_row() { return static_cast<int>(threadIdx.x) / Layout::kSpan; }
  __device__ static int thread_chunk() { return static_cast<int>(threadIdx.x) % Layout::kSpan; }

  __device__ std::uint32_t after(std::uint32_t slot) const {
    return slot == begin_ + (Policy::kSlots - 1) * Policy::kSlotBytes ? begin_
                                                                      : slot + Policy::kSlotBytes;
  }

  // A loop: the copies of unaligned rows are long and rarely run.
  template <int kHalves>
  __device__ void fill() {
#pragma unroll 1
    for (int i = 0; i < kHalves; ++i) {
      if (unit_ < units_) {
        fill_half();
        fill_ = after(fill_);
        ++unit_;
      }
      // Also past the end: take() counts groups.
      ptx::cp_async_commit();
    }
  }

  __device__ void fill_half() {
    const bool is_v = (unit_ & 2) != 0;
    const AttentionInput& input = is_v ? params_.v : params_.k;
    const int first = (unit_ / 4 * 2 + (unit_ & 1)) * Policy::kSlotKeys;
    const int keys = params_.seq_k - work_.first_key - first;
    if (input.alignment != Alignment::bytes_16 || keys < Policy::kSlotKeys) {
      // Rows that are not aligned, or the last ones: none of the rows that follow is copied below.
      const std::int64_t stride = input.seq_stride;
      const std::int8_t* half = SplitStream::first_row(input, work_) + first * stride;
      tile::load_rows<kHeadDim, Policy::kSlotKeys, Policy::kThreads>(
          fill_, keys, params_.head_dim, input.alignment,
          [half, stride](int row) { return half + row * stride; });
      return;
    }
    // The addresses are chosen, so that the copies stand in the code once.
    SplitStream stream = is_v ? v_ : k_;
    copy_rows(stream);
    v_ = is_v ? stream : v_;
    k_ = is_v ? k_ : stream;
  }

  __device__ void copy_rows(SplitStream& stream) {
    const std::uint32_t to = fill_ + Layout::offset(thread_row(), thread_chunk());
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const std::int8_t* from = stream.next();
#pragma unroll
      for (int chunk = 0; chunk < Layout::kChunks; chunk += Layout::kSpan) {
        ptx::cp_async_16(to + pass * kRowsPerPass * kHeadDim + 16 * chunk, from + 16 * chunk,
                         tile::valid_bytes(params_.head_dim, thread_chunk() + chunk));
      }
    }
  }

  const AttentionParams& params_;
  const SplitWork& work_;
  SplitStream k_;
  SplitStream v_;
  int unit_ = 0;
  int units_;
  std::uint32_t begin_;
  std::uint32_t fill_;
  std::uint32_t read_;
};

}  // namespace qattn::cuda::decode
