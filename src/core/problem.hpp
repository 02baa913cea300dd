// A validated, normalised attention problem: what every kernel is given.
#pragma once

#include <cstdint>

#include "qattn/options.hpp"
#include "qattn/tensor.hpp"

namespace qattn::core {

/// Demands beyond the core of the API that not every kernel meets. A kernel's Limits list the ones
/// it implements; all others are refused by name.
enum class Extra : std::uint8_t {
  window_mask,
  boolean_mask,
  additive_mask,
  packed_layout,
  paged_layout,
  scale_per_tensor,
  scale_per_batch_head,
  scale_per_token,
  scale_per_block,
  scale_per_channel,
  uint8_input,
  soft_cap,
  alibi,
  sinks,
  head_dim_v,
  float16_output,
  bfloat16_output,
  int8_output,
};
inline constexpr int kExtraCount = 18;

/// A set of extras.
class ExtraSet {
 public:
  constexpr ExtraSet() noexcept = default;
  constexpr ExtraSet with(Extra extra) const noexcept {
    ExtraSet result = *this;
    result.bits_ |= std::uint32_t{1} << static_cast<int>(extra);
    return result;
  }
  constexpr ExtraSet with(ExtraSet others) const noexcept {
    ExtraSet result = *this;
    result.bits_ |= others.bits_;
    return result;
  }
  constexpr bool has(Extra extra) const noexcept {
    return (bits_ >> static_cast<int>(extra) & 1U) != 0;
  }
  constexpr ExtraSet missing_from(ExtraSet have) const noexcept {
    ExtraSet result;
    result.bits_ = bits_ & ~have.bits_;
    return result;
  }
  constexpr bool empty() const noexcept { return bits_ == 0; }
  friend constexpr bool operator==(ExtraSet, ExtraSet) noexcept = default;

 private:
  std::uint32_t bits_ = 0;
};

/// An input tensor. Strides in elements; those of dimensions with one entry are set to what a
/// contiguous tensor would have, so that kernels may use every stride without a test.
struct InputRef {
  const std::int8_t* data = nullptr;
  Strides strides;
  const float* scale = nullptr;  // one per head of the tensor

  const std::int8_t* row(std::int64_t batch, std::int64_t token, std::int64_t head) const noexcept {
    return data + batch * strides.batch + token * strides.seq + head * strides.heads;
  }
};

/// The output tensor; strides as in InputRef.
struct OutputRef {
  void* data = nullptr;
  Strides strides;
  DataType dtype = DataType::float32;  // another one is an extra that the kernel implements

  /// Of an output whose elements are T: float, or what holds the bits of a 16-bit type.
  template <typename T = float>
  T* row(std::int64_t batch, std::int64_t token, std::int64_t head) const noexcept {
    return static_cast<T*>(data) + batch * strides.batch + token * strides.seq +
           head * strides.heads;
  }
};

/// What every kernel is given. head_dim is 1 to 256, heads_q a multiple of heads_kv, all extents
/// fit 32 bits, and every offset into a tensor fits 64 bits. Extents may be 0 (see empty()).
struct Problem {
  std::int64_t batch = 0;
  std::int64_t seq_q = 0;
  std::int64_t seq_k = 0;
  std::int64_t heads_q = 0;
  std::int64_t heads_kv = 0;
  std::int64_t head_dim = 0;
  Mask::Kind mask = Mask::Kind::causal;
  Precision precision = Precision::high;
  double softmax_scale = 0;
  InputRef q;
  InputRef k;
  InputRef v;
  OutputRef out;
  float* lse = nullptr;  // (batch, heads_q, seq_q), optional
  ExtraSet extras;       // what this problem demands of a kernel beyond the above

  /// Nothing to write.
  bool empty() const noexcept { return batch == 0 || seq_q == 0 || heads_q == 0; }
  /// Query heads that share a key/value head. heads_kv is positive unless the problem is empty.
  std::int64_t group_size() const noexcept { return heads_q / heads_kv; }
  /// Rows of a (batch, kv head) pair: every query of every query head of the group.
  std::int64_t rows() const noexcept { return heads_q == 0 ? 0 : seq_q * group_size(); }
  /// Keys that query i sees are [0, visible_keys(i)).
  std::int64_t visible_keys(std::int64_t i) const noexcept {
    if (mask == Mask::Kind::full) return seq_k;
    const std::int64_t end = i + (seq_k - seq_q) + 1;
    return end < 0 ? 0 : end < seq_k ? end : seq_k;
  }
  /// Natural-log factor of the integer scores of one (query head, kv head) pair, from scales of
  /// q[h] and k[h']. Computed in float64; clamped to the float32 range where every input is finite,
  /// so that finite scales never make an infinite factor; NaN or infinite otherwise.
  double score_factor(float q_scale, float k_scale) const noexcept;
  float* lse_row(std::int64_t b, std::int64_t h) const noexcept {
    return lse == nullptr ? nullptr : lse + (b * heads_q + h) * seq_q;
  }
};

/// Checks the arguments of forward() and normalises them. Throws Error(invalid_argument) with the
/// argument's name, its value and what is allowed. With `follow_pointers` false the pointers may be
/// null and overlaps are not looked for (for workspace_bytes()).
Problem make_problem(const Int8Tensor& q, const Int8Tensor& k, const Int8Tensor& v,
                     const OutputTensor& out, const Options& options, bool follow_pointers = true);

}  // namespace qattn::core
