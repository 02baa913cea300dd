// From floating-point tensors to the INT8 tensors that forward() takes.
#pragma once

#include <cstdint>

#include "qattn/device.hpp"
#include "qattn/export.hpp"
#include "qattn/options.hpp"
#include "qattn/tensor.hpp"

namespace qattn {

/// View of a floating-point tensor (batch, seq, heads, head_dim).
///
///     qattn::FloatTensor x{data, {2, 72, 4, 32}};
struct FloatTensor {
  const void* data = nullptr;          ///< aligned to its element type
  DataType dtype = DataType::float32;  ///< float32, float16 or bfloat16
  Shape shape;
  Strides strides;

  constexpr FloatTensor() noexcept = default;
  /// Contiguous float32 tensor.
  constexpr FloatTensor(const float* tensor, const Shape& extents) noexcept
      : FloatTensor(tensor, DataType::float32, extents, contiguous_strides(extents)) {}
  /// Strided tensor of any floating-point type.
  constexpr FloatTensor(const void* tensor, DataType type, const Shape& extents,
                        const Strides& steps) noexcept
      : data(tensor), dtype(type), shape(extents), strides(steps) {}
};

/// View of an int8 tensor and its scales that quantize() writes; the extents are those of the
/// input.
struct QuantizedTensor {
  std::int8_t* data = nullptr;
  Strides strides;  ///< distinct entries must not share memory
  /// float32, aligned to 4 bytes, one scale per entry of the granularity (see Scale).
  float* scale = nullptr;
  Scale::Granularity granularity = Scale::Granularity::per_head;
  std::int64_t block_tokens = 0;  ///< tokens that share one scale, for per_block; else 0

  constexpr QuantizedTensor() noexcept = default;
  /// Contiguous tensor, one scale per head.
  constexpr QuantizedTensor(std::int8_t* tensor, const Shape& extents, float* scales) noexcept
      : data(tensor), strides(contiguous_strides(extents)), scale(scales) {}

  /// What was written, as an input of forward(). `extents` are those of the quantised tensor.
  constexpr Int8Tensor view(const Shape& extents) const noexcept {
    return {data, extents, strides, Scale{scale, granularity, block_tokens}};
  }
};

/// How quantize() runs on the CPU.
struct QuantizeOptions {
  /// Threads at most; 0: what OpenMP would use (OMP_NUM_THREADS, affinity).
  int threads = 0;
  Executor executor;
};

/// Symmetric quantisation, one scale per head:
///
///     scale[h]       = max |x[b,i,h,d]| / 127                      over b, i and d
///     out[b,i,h,d]   = x[b,i,h,d] / scale[h], rounded to the nearest integer, ties to even,
///                      within -127..127
///
/// in float32 with correctly rounded divisions; float16 and bfloat16 are widened exactly. Both
/// devices give the same bits. Where the division that gives the scale is so imprecise that the
/// largest entry would round to 128 or more (a subnormal scale), the next larger float32 is the
/// scale. A head without a nonzero entry gets scale 1 and zeros, one with batch or seq of 0 too.
///
/// NaN or infinity in a head: in host memory an Error(invalid_argument) that names tensor and head;
/// nothing is written then. In device memory the call cannot wait to see it: the scale of the head
/// becomes NaN and its entries 0, so that attention over it gives NaN for that head alone.
///
/// On a CUDA device, device memory is used in place and asynchronously on the device's stream,
/// without further memory, and the call can be captured in a graph. Host memory is accepted there
/// too: the CPU quantises it, after all work on the stream, and capture is an error. On the CPU the
/// call returns when the result is there.
///
/// Re-entrant and thread-safe. Outputs must not overlap the input or each other. head_dim is 1 or
/// more; heads of 0 write nothing. Granularities other than per_head are refused until they are
/// implemented.
///
/// Throws Error: invalid_argument, unsupported, device_unavailable, out_of_memory, cuda. When it
/// throws for its arguments, nothing was written.
QATTN_API void quantize(const Device& device, const FloatTensor& input, const QuantizedTensor& out,
                        const QuantizeOptions& options = {});

/// The plain case: contiguous float32 (batch, seq, heads, head_dim) to contiguous int8 and
/// scale[heads]. Otherwise as above.
QATTN_API void quantize(const Device& device, const float* input, std::int8_t* out, float* scale,
                        std::int64_t batch, std::int64_t seq, std::int64_t heads,
                        std::int64_t head_dim);

}  // namespace qattn
