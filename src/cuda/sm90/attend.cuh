// A consumer warpgroup: from scores to the output, in integers.
//
// The probabilities of a group of keys are quantised against the group's own maximum, and its
// products with V are added to the output with the weight of that maximum. Precision::high takes 16
// bits, two planes of bytes; Precision::fast takes 8, and 16 for keys that rows see in part and for
// rows whose bytes would lose too much.
//
// A warpgroup takes one group after the other, and each through scores, exponentials and products
// with V. The tensor cores work for one warpgroup while another computes exponentials.
#pragma once

#include <cstdint>

#include "cuda/sm90/bytes.cuh"
#include "cuda/sm90/row_block.cuh"
#include "cuda/sm90/scores.cuh"
#include "cuda/sm90/stream.cuh"

namespace qattn::cuda::sm90 {

/// One consumer warpgroup's work on one block of rows.
template <typename Policy, Precision kPrecision>
class Attention {
  static constexpr int kHeadDim = Policy::kHeadDim;
  static constexpr int kTileKeys = Policy::kKeys;  // a group is one or two tiles
  static constexpr int kGroupTiles = Policy::kGroupTiles;
  static constexpr int kPartKeys = 64;  // of a group that is cut by the mask
  using KvTile = Tile<kHeadDim, kTileKeys>;
  // A row's bytes that sum to less than 5 a key are refined: bytes lose the keys that are more than
  // ln 510 below the maximum, at most half a unit each, a tenth of that sum (docs/numerics.md).
  static constexpr std::uint32_t kLeastSum = 5 * kGroupKeys;
  // Weights are taken against the first group's maximum as long as none exceeds it by 2^60: 2^60 *
  // 65280 * 128 * 2^31 keys is within float32, and what a weight of 2^-126 loses is nothing
  // beside 1.
  static constexpr float kHeadroom = 60.0F;
  // Words are 256 times the bytes without their factor of 2^-24.
  static constexpr float kWordExponent = 32.0F;
  static constexpr float kBytesToWords = 0x1p32F;

 public:
  __device__ Attention(const AttentionParams& params, const tile::BlockWork& work,
                       Stream<Policy>& stream)
      : params_(params),
        work_(work),
        stream_(stream),
        rows_(tile::rows_of_thread(params, work)),
        scale_(params, rows_, params.k.scale[work.head_kv]) {}

  /// `tiles` tiles of keys arrive, the last keys first. Every warpgroup takes one turn for each
  /// group.
  __device__ void run(int tiles) {
    const Visible visible(params_, work_, stream_.warpgroup());
    q_tile_ = stream_.wait_q();
    // The same for all threads of a warp, and known to be.
    const int whole_groups = __shfl_sync(0xFFFFFFFFU, visible.all_keys / kGroupKeys, 0);
    int first_tile = (tiles - 1) / kGroupTiles * kGroupTiles;
#pragma unroll 1
    for (; first_tile >= kGroupTiles * whole_groups; first_tile -= kGroupTiles) {
      add_group_in_part(first_tile, min(kGroupTiles, tiles - first_tile), visible.any_keys);
    }
#pragma unroll 1
    for (int left = whole_groups; left > 0; --left) {
      if constexpr (kPrecision == Precision::high) {
        add_words();
      } else {
        add_bytes();
      }
    }
    stream_.release_q();
  }

  __device__ void finish() { finish_rows(params_, work_, rows_, scale_, state_, out_); }

 private:
  /// A group of `tiles` tiles of which some row sees only a part, in parts of 64 keys; those that
  /// no row sees are left out. Against the whole group at once this takes 4 (`fast`) and 8 % less
  /// with 1024 keys. It keeps its turn throughout: 5 % at head_dim 256 against giving it away.
  __device__ __forceinline__ void add_group_in_part(int first_tile, int tiles, int any_keys) {
    stream_.take_turn();
#pragma unroll 1
    for (int tile = first_tile + tiles - 1; tile >= first_tile; --tile) {
      if (tile * kTileKeys >= any_keys) {
        stream_.skip_tile();
        continue;
      }
#pragma unroll 1
      for (int key = kTileKeys - kPartKeys; key >= 0; key -= kPartKeys) {
        if (tile * kTileKeys + key < any_keys) add_part(tile, key);
      }
      stream_.template release_k<1>();
      stream_.template release_v<1>();
    }
    stream_.pass_turn(0);
  }

  /// The next tile's keys from `first` on, with 16 bits.
  __device__ __forceinline__ void add_part(int tile, int first) {
    Scores<kPartKeys> s;
    begin_scores<kHeadDim, kTileKeys>(s, q_tile_,
                                      stream_.template wait_k<0>() + first * KvTile::kSpanBytes);
    ptx::wgmma_wait<0>();
    ptx::wgmma_ready(s.value);
    orient_scores(s, scale_);
    const int first_key = tile * kTileKeys + first;
    const int limit[2] = {rows_.limit[0] - first_key, rows_.limit[1] - first_key};
    hide_scores(s, limit);
    Words<kPartKeys> words;
    std::uint32_t sums[2];
    float weight[2];
    make_words<false>(words, sums, weight, s);
    const std::uint32_t v_keys[1] = {stream_.template wait_v<0>() +
                                     static_cast<std::uint32_t>(first)};
    multiply_words(words, sums, weight, v_keys, [] {});
  }

  /// The next group, which all rows see whole, with 16 bits.
  __device__ __forceinline__ void add_words() {
    Scores<kGroupKeys> s;
    multiply_scores(s);
    stream_.template release_k<kGroupTiles>();
    orient_scores(s, scale_);
    Words<kGroupKeys> words;
    std::uint32_t sums[2];
    float weight[2];
    make_words<true>(words, sums, weight, s);
    multiply_words_of_group(words, sums, weight);
  }

  /// Scores to words, their sums and their weight.
  template <bool kInTurn, int kKeys>
  __device__ __forceinline__ void make_words(Words<kKeys>& words, std::uint32_t (&sums)[2],
                                             float (&weight)[2], Scores<kKeys>& s) {
    std::int32_t largest[2];
    largest_scores(largest, s);
    relate_scores(s, scale_, largest);
    const float offset[2] = {scale_.offset(0, largest[0]) - kWordExponent,
                             scale_.offset(1, largest[1]) - kWordExponent};
    weigh(weight, largest);
    exponentiate(s, scale_, offset, kInTurn ? stream_.take_turn() : 0);
    if constexpr (kInTurn) stream_.pass_turn(last_exponentials(s));
    pack_words(words, sums, s, [](int, float p) { return p; });
  }

  /// The next group, which all rows see whole, with 8 bits.
  __device__ __forceinline__ void add_bytes() {
    Scores<kGroupKeys> s;
    multiply_scores(s);
    orient_scores(s, scale_);
    std::int32_t largest[2];
    largest_scores(largest, s);
    relate_scores(s, scale_, largest);
    const float offset[2] = {scale_.offset(0, largest[0]), scale_.offset(1, largest[1])};
    exponentiate(s, scale_, offset, stream_.take_turn());
    stream_.pass_turn(last_exponentials(s));
    Bytes<kGroupKeys> bytes;
    std::uint32_t sums[2];
    pack_bytes(bytes, sums, s);
    // Before the vote, whose wait it fills: 5 % against after it.
    float weight[2];
    weigh(weight, largest);
    const bool refine[2] = {sums[0] < kLeastSum, sums[1] < kLeastSum};
    if (stream_.any(refine[0] || refine[1])) {
      refine_group(refine, largest, offset, weight);
      return;
    }
    stream_.template release_k<kGroupTiles>();
    add_sums(sums, weight);
    multiply_bytes(bytes, weight);
  }

  /// Multiplies the group again with 16 bits for the rows that `refine` names: to keep the
  /// exponentials until then costs 3 to 8 % where nothing is refined. The other rows get their
  /// bytes as multiples of 256, so that every row's result is its own.
  __device__ __forceinline__ void refine_group(const bool (&refine)[2],
                                               const std::int32_t (&largest)[2],
                                               const float (&offset)[2], const float (&weight)[2]) {
    Scores<kGroupKeys> s;
    multiply_scores(s);
    stream_.template release_k<kGroupTiles>();
    orient_scores(s, scale_);
    relate_scores(s, scale_, largest);
    exponentiate(s, scale_, offset, 0);
    // Adding and subtracting 1.5 * 2^31 rounds to a multiple of 256.
    const float coarse[2] = {refine[0] ? 0.0F : 0x1.8p31F, refine[1] ? 0.0F : 0x1.8p31F};
    Words<kGroupKeys> words;
    std::uint32_t sums[2];
    pack_words(words, sums, s,
               [&](int row, float p) { return p * kBytesToWords + coarse[row] - coarse[row]; });
    multiply_words_of_group(words, sums, weight);
  }

  /// Scores of the next group's tiles of K, which stay where they are.
  __device__ __forceinline__ void multiply_scores(Scores<kGroupKeys>& s) {
    static_assert(kGroupTiles <= 2);
    begin_scores<kHeadDim, kTileKeys>(s.template part<kTileKeys>(kGroupTiles - 1), q_tile_,
                                      stream_.template wait_k<0>());
    if constexpr (kGroupTiles == 2) {
      begin_scores<kHeadDim, kTileKeys>(s.template part<kTileKeys>(0), q_tile_,
                                        stream_.template wait_k<1>());
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_ready(s.value);
  }

  /// A group's weight, from its largest scores.
  __device__ __forceinline__ void weigh(float (&weight)[2], const std::int32_t (&largest)[2]) {
    float distance[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      distance[row] = scale_.distance(row, largest[row], state_.reference[row]);
    }
    if (__any_sync(0xFFFFFFFFU, distance[0] > kHeadroom || distance[1] > kHeadroom)) {
      change_reference(distance, largest);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) weight[row] = ptx::ex2(distance[row]);
  }

  /// Rare: at the first group and where a row's scores grow without end.
  __device__ __forceinline__ void change_reference(float (&distance)[2],
                                                   const std::int32_t (&largest)[2]) {
    float factor[2] = {1.0F, 1.0F};
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if (distance[row] <= kHeadroom) continue;
      factor[row] = ptx::ex2(scale_.distance(row, state_.reference[row], largest[row]));
      state_.reference[row] = largest[row];
      state_.sum[row] *= factor[row];
      distance[row] = 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) out_.value[i / 8][i % 8 / 4][i % 4] *= factor[i % 8 / 4];
  }

  __device__ __forceinline__ void add_sums(const std::uint32_t (&sums)[2],
                                           const float (&weight)[2]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      state_.sum[row] = fmaf(static_cast<float>(sums[row]), weight[row], state_.sum[row]);
    }
  }

  /// Waits for the next group's tiles of V: that of the lowest keys comes last.
  __device__ __forceinline__ void wait_values(std::uint32_t (&v_tile)[kGroupTiles]) {
    v_tile[kGroupTiles - 1] = stream_.template wait_v<0>();
    if constexpr (kGroupTiles == 2) v_tile[0] = stream_.template wait_v<1>();
  }

  /// Adds the products of the bytes with the next group of V, chunk after chunk of columns; one is
  /// added while the next is multiplied.
  __device__ __forceinline__ void multiply_bytes(const Bytes<kGroupKeys>& bytes,
                                                 const float (&weight)[2]) {
    constexpr int kColumns = Policy::kByteColumns;
    constexpr int kChunks = kHeadDim / kColumns;
    std::uint32_t v_tile[kGroupTiles];
    wait_values(v_tile);
    std::int32_t sum[2][kColumns / 8][4];
    const auto begin = [&](int chunk) {
      ptx::wgmma_ready(sum[chunk % 2]);
      ptx::wgmma_fence();
      multiply_values<kHeadDim, kTileKeys>(sum[chunk % 2], bytes, v_tile, chunk * kColumns);
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
        stream_.template release_v<kGroupTiles>();
      }
      ptx::wgmma_ready(sum[chunk % 2]);
      drain<kColumns>(out_, chunk * kColumns, weight,
                      [&](int n, int i) { return sum[chunk % 2][n][i]; });
    }
  }

  /// The same with words, for the next group of V.
  __device__ __forceinline__ void multiply_words_of_group(const Words<kGroupKeys>& words,
                                                          const std::uint32_t (&sums)[2],
                                                          const float (&weight)[2]) {
    std::uint32_t v_tile[kGroupTiles];
    wait_values(v_tile);
    multiply_words(words, sums, weight, v_tile,
                   [this] { stream_.template release_v<kGroupTiles>(); });
  }

  /// Adds the sums and the products of both planes with the keys from v_keys[t] on of tile t of V,
  /// a unit of 1 / 256 of the bytes'. The products stay below 65536 * 128 * 128 = 2^30. Calls
  /// release() when the last product is done.
  template <int kTiles, int kKeys, typename Release>
  __device__ __forceinline__ void multiply_words(const Words<kKeys>& words,
                                                 const std::uint32_t (&sums)[2],
                                                 const float (&weight_of_bytes)[2],
                                                 const std::uint32_t (&v_keys)[kTiles],
                                                 Release release) {
    constexpr int kColumns = Policy::kWordColumns;
    const float weight[2] = {weight_of_bytes[0] / 256.0F, weight_of_bytes[1] / 256.0F};
    add_sums(sums, weight);
#pragma unroll
    for (int column = 0; column < kHeadDim; column += kColumns) {
      std::int32_t high[kColumns / 8][4];
      std::int32_t low[kColumns / 8][4];
      ptx::wgmma_ready(high);
      ptx::wgmma_ready(low);
      ptx::wgmma_fence();
      multiply_values<kHeadDim, kTileKeys>(high, words.high, v_keys, column);
      multiply_values<kHeadDim, kTileKeys>(low, words.low, v_keys, column);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::wgmma_ready(high);
      ptx::wgmma_ready(low);
      if (column + kColumns == kHeadDim) release();
      drain<kColumns>(out_, column, weight,
                      [&](int n, int i) { return 256 * high[n][i] + low[n][i]; });
    }
  }

  const AttentionParams& params_;
  const tile::BlockWork& work_;
  Stream<Policy>& stream_;
  std::uint32_t q_tile_ = 0;
  tile::Rows rows_;
  RowScale scale_;
  RowState state_;
  tile::Output<kHeadDim> out_;
};

}  // namespace qattn::cuda::sm90
