// Views of the caller's tensors: pointer, element type, shape, strides, scale, sequence layout.
// A view owns nothing; what it points to must stay valid until forward() has finished with it (on a
// CUDA device: until the work on the stream is done).
#pragma once

#include <cstdint>

namespace qattn {

/// Element types of tensors.
enum class DataType : std::uint8_t { int8, uint8, float32, float16, bfloat16 };

/// Extents of a tensor (batch, seq, heads, head_dim), in elements.
struct Shape {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
};

/// Distance between neighbours along batch, seq and heads, in elements. head_dim is contiguous.
/// Strides of dimensions with fewer than two entries are ignored; all others must be positive.
struct Strides {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t heads = 0;
};

/// Strides of a contiguous row-major (batch, seq, heads, head_dim) tensor. A product that leaves
/// 64 bits comes out as 0, which forward() refuses.
constexpr Strides contiguous_strides(const Shape& shape) noexcept {
  std::int64_t seq_stride = 0;
  std::int64_t batch_stride = 0;
  if (__builtin_mul_overflow(shape.heads, shape.head_dim, &seq_stride)) seq_stride = 0;
  if (__builtin_mul_overflow(seq_stride, shape.seq, &batch_stride)) batch_stride = 0;
  return {batch_stride, seq_stride, shape.head_dim};
}

/// Scales of a quantised tensor: real value = scale * (integer - zero point). The array lies in the
/// same memory space as the tensor.
struct Scale {
  /// Which entries of the tensor share one scale. `heads` is the tensor's own number of heads.
  enum class Granularity : std::uint8_t {
    per_tensor,      ///< data[1]
    per_head,        ///< data[heads]
    per_batch_head,  ///< data[batch][heads]
    per_token,       ///< data[batch][seq][heads]
    per_block,       ///< data[batch][ceil(seq / block_tokens)][heads]
    per_channel,     ///< data[heads][head_dim]
  };
  const float* data = nullptr;
  Granularity granularity = Granularity::per_head;
  std::int64_t block_tokens = 0;  ///< tokens that share one scale, for per_block; else 0
};

/// One scale for the whole tensor: data[1].
constexpr Scale per_tensor(const float* data) noexcept {
  return {data, Scale::Granularity::per_tensor, 0};
}
/// One scale per head: data[heads]. The granularity that every kernel implements.
constexpr Scale per_head(const float* data) noexcept {
  return {data, Scale::Granularity::per_head, 0};
}
/// One scale per batch entry and head: data[batch][heads].
constexpr Scale per_batch_head(const float* data) noexcept {
  return {data, Scale::Granularity::per_batch_head, 0};
}
/// One scale per token and head: data[batch][seq][heads].
constexpr Scale per_token(const float* data) noexcept {
  return {data, Scale::Granularity::per_token, 0};
}
/// One scale per block of tokens and head: data[batch][ceil(seq / block_tokens)][heads].
constexpr Scale per_block(const float* data, std::int64_t block_tokens) noexcept {
  return {data, Scale::Granularity::per_block, block_tokens};
}
/// One scale per head and channel: data[heads][head_dim].
constexpr Scale per_channel(const float* data) noexcept {
  return {data, Scale::Granularity::per_channel, 0};
}

/// How sequences lie in the tensor. Dense is one (batch, seq, heads, head_dim) block; the others
/// take over the batch and seq dimensions. Fields of another kind must be null or 0.
struct SequenceLayout {
  enum class Kind : std::uint8_t {
    dense,   ///< every sequence has shape.seq tokens
    packed,  ///< shape.batch = 1, shape.seq = all tokens; sequence i is [offsets[i], offsets[i+1])
    paged,   ///< shape.batch = pages, shape.seq = tokens per page; block_table names the pages
  };
  Kind kind = Kind::dense;
  std::int64_t sequences = 0;                 ///< number of sequences, packed and paged
  const std::int32_t* offsets = nullptr;      ///< [sequences + 1], packed
  const std::int32_t* lengths = nullptr;      ///< [sequences] tokens in use, paged
  const std::int32_t* block_table = nullptr;  ///< [sequences][block_table_stride] page ids, paged
  std::int64_t block_table_stride = 0;        ///< entries per row of block_table, paged
};

/// View of a quantised input tensor q, k or v.
///
///     qattn::Int8Tensor q{q_data, {2, 72, 4, 32}, qattn::per_head(q_scale)};
struct Int8Tensor {
  const void* data = nullptr;
  DataType dtype = DataType::int8;  ///< int8 or uint8
  Shape shape;
  Strides strides;
  Scale scale;
  /// Zero points of a uint8 tensor, in the scale's granularity; null for int8.
  const std::uint8_t* zero_point = nullptr;
  SequenceLayout layout;

  constexpr Int8Tensor() noexcept = default;
  /// Contiguous int8 tensor.
  constexpr Int8Tensor(const std::int8_t* tensor, const Shape& extents,
                       const Scale& scales) noexcept
      : Int8Tensor(tensor, extents, contiguous_strides(extents), scales) {}
  /// Strided int8 tensor.
  constexpr Int8Tensor(const std::int8_t* tensor, const Shape& extents, const Strides& steps,
                       const Scale& scales) noexcept
      : data(tensor), shape(extents), strides(steps), scale(scales) {}
  /// Contiguous uint8 tensor with zero points.
  constexpr Int8Tensor(const std::uint8_t* tensor, const Shape& extents, const Scale& scales,
                       const std::uint8_t* zero_points) noexcept
      : data(tensor),
        dtype(DataType::uint8),
        shape(extents),
        strides(contiguous_strides(extents)),
        scale(scales),
        zero_point(zero_points) {}
};

/// View of the output tensor (batch, seq_q, heads_q, head_dim of v). Every kernel writes float32;
/// the CUDA kernels also float16 and bfloat16: the float32 result rounded to nearest, ties to even,
/// past the largest value to infinity.
struct OutputTensor {
  void* data = nullptr;
  DataType dtype = DataType::float32;
  Shape shape;
  Strides strides;
  /// Of an int8 output, given by the caller: round to nearest even, saturating. Else no data.
  Scale scale;

  constexpr OutputTensor() noexcept = default;
  /// Contiguous float32 output.
  constexpr OutputTensor(float* tensor, const Shape& extents) noexcept
      : OutputTensor(tensor, extents, contiguous_strides(extents)) {}
  /// Strided float32 output. Distinct entries must not share memory.
  constexpr OutputTensor(float* tensor, const Shape& extents, const Strides& steps) noexcept
      : data(tensor), shape(extents), strides(steps) {}
  /// Contiguous output of any type.
  constexpr OutputTensor(void* tensor, DataType type, const Shape& extents) noexcept
      : OutputTensor(tensor, type, extents, contiguous_strides(extents)) {}
  /// Strided output of any type. Distinct entries must not share memory.
  constexpr OutputTensor(void* tensor, DataType type, const Shape& extents,
                         const Strides& steps) noexcept
      : data(tensor), dtype(type), shape(extents), strides(steps) {}
};

}  // namespace qattn
