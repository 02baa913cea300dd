// What Step::chunk on vectors (vector_chunk.hpp) keeps in its scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/decode_shape.hpp"
#include "cpu/scratch.hpp"
#include "cpu/tile/elements.hpp"
#include "cpu/tile/numerics.hpp"
#include "cpu/tile/vector_products.hpp"

namespace qattn::cpu {
namespace {

// Four rows of bytes take 16 registers of sums.
constexpr std::int64_t kMaxVectorRows = 4;

// Of a head, with a lane for each row; lanes without a row have the values of VectorState().
template <class Lanes>
struct VectorState {
  alignas(64) float maximum[Lanes::kLanes];
  alignas(64) float sum[Lanes::kLanes];
  alignas(64) float factor[Lanes::kLanes];
  alignas(64) float group_maximum[Lanes::kLanes];
  alignas(64) std::int32_t group_sum[Lanes::kLanes];
  alignas(64) float old_weight[Lanes::kLanes];
  alignas(64) float new_weight[Lanes::kLanes];
  bool is_words[kMaxVectorRows] = {};

  VectorState() {
    for (std::int64_t i = 0; i < Lanes::kLanes; ++i) {
      sum[i] = factor[i] = 0;
      maximum[i] = group_maximum[i] = kHidden;
      group_sum[i] = 0;
    }
  }
};

template <class Lanes>
class VectorMemory {
 public:
  using State = VectorState<Lanes>;
  // Rows whose scores for a quad of keys share a vector.
  static constexpr int kUnits = static_cast<int>(Lanes::kLanes / kQuad);

  // Rows of a head with rows of zeros, so that vectors are full.
  static constexpr std::int64_t padded(std::int64_t rows) { return rows == 3 ? 4 : rows; }

  VectorMemory(std::byte* scratch, const DecodeShape& shape)
      : head_dim_(shape.head_dim), rows_(shape.rows), padded_rows_(padded(shape.rows)) {
    static_assert(always_fits());
    std::byte* end = scratch;
    const auto take = [&]<class T>(T*& array, std::int64_t count) {
      array = reinterpret_cast<T*>(end);
      end += round_up(count * static_cast<std::int64_t>(sizeof(T)), kVectorBytes);
    };
    const std::int64_t all_rows = shape.heads * shape.rows;
    const std::int64_t all_padded = shape.heads * padded_rows_;
    take(queries_, all_padded * shape.head_dim);
    take(scores_, all_padded * kGroupKeys);
    take(sign_, (all_padded + kUnits) * kQuad);
    take(bias_, (all_padded + kUnits) * kQuad);
    take(output_, all_rows * shape.head_dim);
    take(sums_, all_rows * shape.head_dim);
    take(codes_, all_rows * 2 * kGroupKeys);
    take(states_, shape.heads);
  }

  std::int64_t padded_rows() const { return padded_rows_; }
  // [column]
  std::int8_t* query(std::int64_t head, std::int64_t row) const {
    return queries_ + (head * padded_rows_ + row) * head_dim_;
  }
  // [position of the key]
  float* scores(std::int64_t head, std::int64_t row) const {
    return scores_ + (head * padded_rows_ + row) * kGroupKeys;
  }
  // What makes a score of a product: -1 where the factor is negative, else 0, and what is added
  // then. kQuad times, and what vectors read behind the last row.
  std::int32_t* sign(std::int64_t head, std::int64_t row) const {
    return sign_ + (head * padded_rows_ + row) * kQuad;
  }
  std::int32_t* bias(std::int64_t head, std::int64_t row) const {
    return bias_ + (head * padded_rows_ + row) * kQuad;
  }
  // [column_place(column)]
  float* output(std::int64_t head, std::int64_t row) const {
    return output_ + (head * rows_ + row) * head_dim_;
  }
  std::int32_t* sums(std::int64_t head, std::int64_t row) const {
    return sums_ + (head * rows_ + row) * head_dim_;
  }
  // [plane][position of the key]
  std::uint8_t* codes(std::int64_t head, std::int64_t row) const {
    return codes_ + (head * rows_ + row) * 2 * kGroupKeys;
  }
  State& state(std::int64_t head) const { return states_[head]; }

 private:
  // Whether the constructor stays within DecodeShape::scratch_bytes(), for every shape.
  static constexpr bool always_fits() {
    for (std::int64_t head_dim = kVectorBytes; head_dim <= 256; head_dim += kVectorBytes) {
      for (std::int64_t rows = 1; rows <= kMaxVectorRows; ++rows) {
        for (std::int64_t heads = 1; heads <= kMaxChunkHeads; ++heads) {
          const std::int64_t row_bytes = (4 + 4) * head_dim + 2 * kGroupKeys;
          const std::int64_t padded_bytes = head_dim + 4 * kGroupKeys + 2 * 4 * kQuad;
          const std::int64_t head_bytes = static_cast<std::int64_t>(sizeof(State)) +
                                          rows * row_bytes + padded(rows) * padded_bytes;
          const std::int64_t behind = 2 * (4 * kUnits * kQuad + kVectorBytes);
          const std::int64_t bytes = heads * head_bytes + behind;
          const std::size_t given = DecodeShape{head_dim, rows, heads}.scratch_bytes();
          if (static_cast<std::size_t>(bytes) > given) return false;
        }
      }
    }
    return true;
  }

  const std::int64_t head_dim_;
  const std::int64_t rows_;
  const std::int64_t padded_rows_;
  std::int8_t* queries_;
  float* scores_;
  std::int32_t* sign_;
  std::int32_t* bias_;
  float* output_;
  std::int32_t* sums_;
  std::uint8_t* codes_;
  State* states_;
};

}  // namespace
}  // namespace qattn::cpu
