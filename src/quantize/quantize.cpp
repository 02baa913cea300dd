#include "qattn/quantize.hpp"

#include <array>
#include <string>

#include "core/quantize_problem.hpp"
#include "core/unused.hpp"
#include "core/view.hpp"
#include "cuda/quantize.hpp"
#include "dispatch/placement.hpp"
#include "dispatch/resolve.hpp"
#include "qattn/error.hpp"
#include "quantize/host.hpp"

namespace qattn {
namespace {

using core::QuantizeProblem;
using core::refuse;

std::int64_t element_bytes(DataType type) {
  switch (type) {
    case DataType::float32:
      return 4;
    case DataType::float16:
    case DataType::bfloat16:
      return 2;
    default:
      refuse("input.dtype is an integer type (allowed: float32, float16, bfloat16)");
  }
}

void check_granularity(Scale::Granularity granularity) {
  const char* name = nullptr;
  switch (granularity) {
    case Scale::Granularity::per_head:
      return;
    case Scale::Granularity::per_tensor:
      name = "per_tensor";
      break;
    case Scale::Granularity::per_batch_head:
      name = "per_batch_head";
      break;
    case Scale::Granularity::per_token:
      name = "per_token";
      break;
    case Scale::Granularity::per_block:
      name = "per_block";
      break;
    case Scale::Granularity::per_channel:
      name = "per_channel";
      break;
  }
  if (name == nullptr) {
    refuse("out.granularity is " + std::to_string(static_cast<int>(granularity)) +
           " (allowed: a value of Scale::Granularity)");
  }
  throw Error(ErrorCode::unsupported, std::string("out.granularity is ") + name +
                                          ", which is not implemented yet (allowed: per_head)");
}

void check_pointer(const char* name, const void* pointer, std::int64_t alignment, bool used) {
  if (used && pointer == nullptr) {
    refuse(std::string(name) + " is null (allowed: null only where there is nothing to write)");
  }
  if (reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(alignment) != 0) {
    refuse(std::string(name) + " is not aligned to its elements (allowed: multiples of " +
           std::to_string(alignment) + " bytes)");
  }
}

QuantizeProblem make_problem(const FloatTensor& input, const QuantizedTensor& out,
                             const QuantizeOptions& options) {
  const std::int64_t bytes = element_bytes(input.dtype);
  check_granularity(out.granularity);
  core::refuse_unused_block("out", "", out.granularity, out.block_tokens);
  if (options.threads < 0) {
    refuse("options.threads is " + std::to_string(options.threads) +
           " (allowed: 0 for the default, or a positive number)");
  }
  const Shape& shape = input.shape;
  core::check_extents("input", shape);
  if (shape.head_dim < 1) refuse("input.shape.head_dim is 0 (allowed: 1 or more)");
  std::int64_t input_span = 0;
  std::int64_t out_span = 0;
  QuantizeProblem p;
  p.input = input.data;
  p.dtype = input.dtype;
  p.input_strides = core::normalise_strides("input", shape, input.strides, bytes, &input_span);
  p.out = out.data;
  p.out_strides = core::normalise_strides("out", shape, out.strides, 1, &out_span);
  p.scale = out.scale;
  p.batch = shape.batch;
  p.seq = shape.seq;
  p.heads = shape.heads;
  p.head_dim = shape.head_dim;
  if (out_span > 0) core::check_output_strides("out", shape, p.out_strides);
  check_pointer("input.data", p.input, bytes, input_span > 0);
  check_pointer("out.data", p.out, 1, out_span > 0);
  check_pointer("out.scale", p.scale, alignof(float), p.heads > 0);

  const std::array<core::Range, 3> ranges = {
      {{"out.data", p.out, out_span},
       {"out.scale", p.scale, p.heads * static_cast<std::int64_t>(sizeof(float))},
       {"input.data", p.input, input_span * bytes}}};
  for (std::size_t written = 0; written < 2; ++written) {
    for (std::size_t other = written + 1; other < ranges.size(); ++other) {
      if (core::overlap(ranges[written], ranges[other])) {
        refuse(std::string(ranges[written].name) + " overlaps " + ranges[other].name +
               " (allowed: memory of its own)");
      }
    }
  }
  return p;
}

}  // namespace

void quantize(const Device& device, const FloatTensor& input, const QuantizedTensor& out,
              const QuantizeOptions& options) {
  const QuantizeProblem problem = make_problem(input, out, options);
  dispatch::device_features(device);  // throws with the reason where the device cannot be used
  if (problem.heads == 0) return;
  const std::array<dispatch::Argument, 3> arguments = {
      {{"input.data", problem.rows() == 0 ? nullptr : problem.input},
       {"out.data", problem.rows() == 0 ? nullptr : problem.out},
       {"out.scale", problem.scale}}};
  const bool host_memory = dispatch::check_memory(device, arguments);
  if (!host_memory) {
    cuda::quantize(device, problem);
    return;
  }
  if (device.kind() == Device::Kind::cuda) cuda::wait_for_stream(device);
  quantization::quantize_host(problem, options);
}

void quantize(const Device& device, const float* input, std::int8_t* out, float* scale,
              std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t head_dim) {
  const Shape shape{batch, seq, heads, head_dim};
  quantize(device, FloatTensor(input, shape), QuantizedTensor(out, shape, scale));
}

}  // namespace qattn
