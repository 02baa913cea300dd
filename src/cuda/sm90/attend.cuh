// A consumer warpgroup: from scores to the output, in integers.
//
// Every tile of keys is a group of its own: its probabilities are quantised against its own
// maximum, and its products with V are added to the output with the weight of that maximum.
// Precision::high takes 16 bits, two planes of bytes; Precision::fast takes 8, and 16 for tiles
// that rows see in part and for rows whose bytes would lose too much.
#pragma once

#include <cstdint>

#include "cuda/sm90/bytes.cuh"
#include "cuda/sm90/row_block.cuh"
#include "cuda/sm90/scores.cuh"
#include "cuda/sm90/stream.cuh"

namespace qattn::cuda::sm90 {

/// One consumer warpgroup's work on one block of rows.
template <int kHeadDim, Precision kPrecision>
class Attention {
  using Policy = Sm90Policy<kHeadDim>;
  static constexpr int kKeys = Policy::kKeys;
  static constexpr int kColumns = Policy::kColumnsPerProduct;
  static constexpr int kChunks = kHeadDim / kColumns;
  // A row's bytes that sum to less than 5 a key are refined: bytes lose the keys that are more than
  // ln 510 below the maximum, at most half a unit each, a tenth of that sum (docs/numerics.md).
  static constexpr std::int32_t kLeastSum = 5 * kKeys;
  // Weights are taken against the first tile's maximum as long as none exceeds it by 2^60: 2^60 *
  // 65280 * 128 * 2^31 keys is within float32, and what a weight of 2^-126 loses is nothing
  // beside 1.
  static constexpr float kHeadroom = 60.0F;

 public:
  __device__ Attention(const AttentionParams& params, const tile::BlockWork& work,
                       Stream<Policy>& stream)
      : params_(params),
        work_(work),
        stream_(stream),
        rows_(tile::rows_of_thread(params, work)),
        scale_(params, rows_, params.k.scale[work.head_kv]) {}

  /// `tiles` tiles of keys arrive, the last keys first.
  __device__ void run(int tiles) {
    const Visible visible = Visible::of<kKeys>(params_, work_, stream_.warpgroup());
    const std::uint32_t q_tile = stream_.wait_q();
    int tile = tiles - 1;
    for (; tile >= visible.any_tiles; --tile) stream_.skip_tile();
    for (; tile >= visible.all_tiles; --tile) boundary_tile(q_tile, tile * kKeys);
    if (tile >= 0) {
      if constexpr (kPrecision == Precision::high) {
        whole_tiles_of_words(q_tile, tile + 1);
      } else if constexpr (Policy::kOverlap) {
        whole_tiles_overlapped(q_tile, tile + 1);
      } else {
        whole_tiles(q_tile, tile + 1);
      }
    }
    stream_.release_q();
  }

  __device__ void finish() { finish_rows(params_, work_, rows_, scale_, state_, out_); }

 private:
  /// A tile of which some row sees a part: 16 bits. At most two of a block of rows.
  __device__ __forceinline__ void boundary_tile(std::uint32_t q_tile, int first_key) {
    const int limit[2] = {rows_.limit[0] - first_key, rows_.limit[1] - first_key};
    Scores<kKeys> s;
    multiply_scores(s, q_tile);
    stream_.release_k();
    orient_scores(s, scale_);
    hide_scores(s, limit);
    largest_scores(largest_, s);
    follow_largest();
    exponentiate_words(s);
    hide_probabilities(s, limit);
    Bytes<kKeys> high;
    Bytes<kKeys> low;
    pack_words(high, low, s);
    add_words(high, low);
    stream_.release_v();
  }

  /// The tiles `count` - 1 to 0, which all rows see whole, with 16 bits.
  __device__ __forceinline__ void whole_tiles_of_words(std::uint32_t q_tile, int count) {
#pragma unroll 1
    for (int left = count; left > 0; --left) {
      Scores<kKeys> s;
      multiply_scores(s, q_tile);
      stream_.release_k();
      orient_scores(s, scale_);
      largest_scores(largest_, s);
      follow_largest();
      exponentiate_words(s);
      Bytes<kKeys> high;
      Bytes<kKeys> low;
      pack_words(high, low, s);
      add_words(high, low);
      stream_.release_v();
    }
  }

  /// The tiles `count` - 1 to 0, which all rows see whole: a tile's scores are multiplied beside
  /// the values of the one before, and its exponentials follow beside them too.
  __device__ __forceinline__ void whole_tiles_overlapped(std::uint32_t q_tile, int count) {
    Scores<kKeys> s;
    std::int32_t sum[kHeadDim / 8][4];
    multiply_scores(s, q_tile);
    exponentiate_bytes(s);
    Shorts<kKeys> shorts;
    round_probabilities(shorts, s);
    Sums sums = sum_and_judge(shorts);
    pack_bytes(p_, shorts);
    follow_largest();
    add_sums(sums, q_tile);
#pragma unroll 1
    for (int left = count - 1; left > 0; --left) {
      const std::uint32_t k_tile = stream_.wait_k();
      begin_scores<kHeadDim>(s, q_tile, k_tile);
      begin_values(sum);
      ptx::wgmma_wait<1>();
      ptx::wgmma_ready(s.value);
      exponentiate_bytes(s);
      round_probabilities(shorts, s);
      // The assembler moves exponentials past a wait that they have nothing to do with, and then
      // they no longer overlap with the product that is waited for; but not past a barrier that
      // needs them.
      sums = sum_and_judge(shorts);
      end_values(sum);
      pack_bytes(p_, shorts);
      follow_largest();
      add_sums(sums, q_tile);
    }
    begin_values(sum);
    end_values(sum);
  }

  /// The same, one product after the other.
  __device__ __forceinline__ void whole_tiles(std::uint32_t q_tile, int count) {
#pragma unroll 1
    for (int left = count; left > 0; --left) {
      Scores<kKeys> s;
      multiply_scores(s, q_tile);
      exponentiate_bytes(s);
      Shorts<kKeys> shorts;
      round_probabilities(shorts, s);
      const Sums sums = sum_and_judge(shorts);
      pack_bytes(p_, shorts);
      follow_largest();
      add_sums(sums, q_tile);
      add_values();
      stream_.release_v();
    }
  }

  /// The caller releases K.
  __device__ __forceinline__ void multiply_scores(Scores<kKeys>& s, std::uint32_t q_tile) {
    const std::uint32_t k_tile = stream_.wait_k();
    begin_scores<kHeadDim>(s, q_tile, k_tile);
    ptx::wgmma_wait<0>();
    ptx::wgmma_ready(s.value);
  }

  /// Scores of a tile that all rows see whole to probabilities in units of 1 / 255.
  __device__ __forceinline__ void exponentiate_bytes(Scores<kKeys>& s) {
    orient_scores(s, scale_);
    largest_scores(largest_, s);
    relate_scores(s, scale_, largest_);
    const float offset[2] = {scale_.offset(0, largest_[0]), scale_.offset(1, largest_[1])};
    exponentiate(s, scale_, offset);
  }

  /// Oriented scores to probabilities in units of 1 / 65280, 256 times the bytes' and without their
  /// factor of 2^-24.
  __device__ __forceinline__ void exponentiate_words(Scores<kKeys>& s) {
    relate_scores(s, scale_, largest_);
    const float offset[2] = {scale_.offset(0, largest_[0]) - 32.0F,
                             scale_.offset(1, largest_[1]) - 32.0F};
    exponentiate(s, scale_, offset);
  }

  /// The tile's weight, from its largest scores.
  __device__ __forceinline__ void follow_largest() {
    float distance[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      distance[row] = scale_.distance(row, largest_[row], state_.reference[row]);
    }
    if (__any_sync(0xFFFFFFFFU, distance[0] > kHeadroom || distance[1] > kHeadroom)) {
      change_reference(distance);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) weight_[row] = ptx::ex2(distance[row]);
  }

  /// Rare: at the first tile and where a row's scores grow without end.
  __device__ __forceinline__ void change_reference(float (&distance)[2]) {
    float factor[2] = {1.0F, 1.0F};
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if (distance[row] <= kHeadroom) continue;
      factor[row] = ptx::ex2(scale_.distance(row, state_.reference[row], largest_[row]));
      state_.reference[row] = largest_[row];
      state_.sum[row] *= factor[row];
      distance[row] = 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) out_.value[i / 8][i % 8 / 4][i % 4] *= factor[i % 8 / 4];
  }

  /// A tile's sums of bytes and which rows they are too small for.
  struct Sums {
    std::int32_t row[2];
    bool refine[2];
    bool refine_any;  // of the warpgroup
  };

  __device__ __forceinline__ Sums sum_and_judge(const Shorts<kKeys>& p) const {
    Sums sums;
    sum_shorts(sums.row, p);
    for (int row = 0; row < 2; ++row) sums.refine[row] = sums.row[row] < kLeastSum;
    sums.refine_any = stream_.any(sums.refine[0] || sums.refine[1]);
    return sums;
  }

  /// Adds the sums of the current tile's bytes, or refines the tile if a row needs it, and releases
  /// K.
  __device__ __forceinline__ void add_sums(const Sums& sums, std::uint32_t q_tile) {
    if (sums.refine_any) {
      refine_tile(q_tile, sums.refine);
    } else {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        state_.sum[row] = fmaf(static_cast<float>(sums.row[row]), weight_[row], state_.sum[row]);
      }
    }
    stream_.release_k();
  }

  /// Multiplies the tile again with 16 bits for the rows that `refine` names; the others keep their
  /// bytes, so that every row's result is its own. What the caller adds after this has weight 0.
  __device__ __forceinline__ void refine_tile(std::uint32_t q_tile, const bool (&refine)[2]) {
    Scores<kKeys> s;
    begin_scores<kHeadDim>(s, q_tile, stream_.wait_k());
    ptx::wgmma_wait<0>();
    ptx::wgmma_ready(s.value);
    orient_scores(s, scale_);
    exponentiate_words(s);
    Bytes<kKeys> high;
    Bytes<kKeys> low;
    pack_words(high, low, s);
#pragma unroll
    for (int i = 0; i < 4 * Bytes<kKeys>::kSteps; ++i) {
      high.a[i] = refine[i % 2] ? high.a[i] : p_.a[i];
      low.a[i] = refine[i % 2] ? low.a[i] : 0U;
    }
    add_words(high, low);
    weight_[0] = 0.0F;
    weight_[1] = 0.0F;
  }

  /// Adds the sums and the products of both planes with the next tile of V, a unit of 1 / 256 of
  /// the bytes'. The products stay below 65536 * 128 * 128 = 2^30.
  __device__ __forceinline__ void add_words(const Bytes<kKeys>& high, const Bytes<kKeys>& low) {
    const float weight[2] = {weight_[0] / 256.0F, weight_[1] / 256.0F};
    std::int32_t high_sums[2];
    std::int32_t low_sums[2];
    sum_bytes(high_sums, high);
    sum_bytes(low_sums, low);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      state_.sum[row] = fmaf(static_cast<float>(256 * high_sums[row] + low_sums[row]), weight[row],
                             state_.sum[row]);
    }
    const std::uint32_t v_tile = stream_.wait_v();
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      std::int32_t high_product[kColumns / 8][4];
      std::int32_t low_product[kColumns / 8][4];
      ptx::wgmma_ready(high_product);
      ptx::wgmma_ready(low_product);
      ptx::wgmma_fence();
      multiply_values<kHeadDim>(high_product, high, v_tile, chunk * kColumns);
      multiply_values<kHeadDim>(low_product, low, v_tile, chunk * kColumns);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::wgmma_ready(high_product);
      ptx::wgmma_ready(low_product);
      drain<kColumns>(out_, chunk * kColumns, weight,
                      [&](int n, int i) { return 256 * high_product[n][i] + low_product[n][i]; });
    }
  }

  /// Starts the products of the bytes with the next tile of V, all columns at once.
  __device__ __forceinline__ void begin_values(std::int32_t (&sum)[kHeadDim / 8][4]) {
    const std::uint32_t v_tile = stream_.wait_v();
    ptx::wgmma_ready(sum);
    ptx::wgmma_fence();
    multiply_values<kHeadDim>(sum, p_, v_tile, 0);
    ptx::wgmma_commit();
  }

  /// Waits for them and adds them to the output.
  __device__ __forceinline__ void end_values(std::int32_t (&sum)[kHeadDim / 8][4]) {
    ptx::wgmma_wait<0>();
    ptx::wgmma_ready(sum);
    stream_.release_v();
    drain<kHeadDim>(out_, 0, weight_, [&](int n, int i) { return sum[n][i]; });
  }

  /// Multiplies chunk after chunk of columns; one is drained while the next is multiplied.
  __device__ __forceinline__ void add_values() {
    const std::uint32_t v_tile = stream_.wait_v();
    std::int32_t sum[2][kColumns / 8][4];
    const auto begin = [&](int chunk) {
      ptx::wgmma_ready(sum[chunk % 2]);
      ptx::wgmma_fence();
      multiply_values<kHeadDim>(sum[chunk % 2], p_, v_tile, chunk * kColumns);
      ptx::wgmma_commit();
    };
    begin(0);
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if (chunk + 1 < kChunks) {
        begin(chunk + 1);
        ptx::wgmma_wait<1>();
      } else {
        ptx::wgmma_wait<0>();
      }
      ptx::wgmma_ready(sum[chunk % 2]);
      drain<kColumns>(out_, chunk * kColumns, weight_,
                      [&](int n, int i) { return sum[chunk % 2][n][i]; });
    }
  }

  const AttentionParams& params_;
  const tile::BlockWork& work_;
  Stream<Policy>& stream_;
  tile::Rows rows_;
  RowScale<kHeadDim> scale_;
  RowState state_;
  std::int32_t largest_[2];  // scores of the current tile
  float weight_[2];          // of the current tile
  Bytes<kKeys> p_;           // the current tile's probabilities
  tile::Output<kHeadDim> out_;
};

}  // namespace qattn::cuda::sm90
