#include "capi/convert.hpp"

#include <string>

#include "capi/status.hpp"
#include "capi/structs.hpp"

namespace qattn::capi {
namespace {

// The layout is the ABI: a change of these numbers breaks programs that are already compiled.
static_assert(sizeof(qattn_device) == 24);
static_assert(sizeof(qattn_tensor) == 152);
static_assert(sizeof(qattn_output) == 96);
static_assert(sizeof(qattn_options) == 144);
static_assert(sizeof(qattn_float_tensor) == 80);
static_assert(sizeof(qattn_quantized) == 64);
static_assert(sizeof(qattn_quantize_options) == 32);

// Enumerators are the same numbers in both APIs.
template <typename Enum>
constexpr bool is(Enum value, int number) noexcept {
  return static_cast<int>(value) == number;
}
static_assert(is(Device::Kind::cpu, QATTN_DEVICE_CPU) && is(Device::Kind::cuda, QATTN_DEVICE_CUDA));
static_assert(is(DataType::int8, QATTN_INT8) && is(DataType::uint8, QATTN_UINT8) &&
              is(DataType::float32, QATTN_FLOAT32) && is(DataType::float16, QATTN_FLOAT16) &&
              is(DataType::bfloat16, QATTN_BFLOAT16));
static_assert(is(Scale::Granularity::per_tensor, QATTN_PER_TENSOR) &&
              is(Scale::Granularity::per_head, QATTN_PER_HEAD) &&
              is(Scale::Granularity::per_batch_head, QATTN_PER_BATCH_HEAD) &&
              is(Scale::Granularity::per_token, QATTN_PER_TOKEN) &&
              is(Scale::Granularity::per_block, QATTN_PER_BLOCK) &&
              is(Scale::Granularity::per_channel, QATTN_PER_CHANNEL));
static_assert(is(SequenceLayout::Kind::dense, QATTN_DENSE) &&
              is(SequenceLayout::Kind::packed, QATTN_PACKED) &&
              is(SequenceLayout::Kind::paged, QATTN_PAGED));
static_assert(is(Mask::Kind::causal, QATTN_MASK_CAUSAL) && is(Mask::Kind::full, QATTN_MASK_FULL) &&
              is(Mask::Kind::window, QATTN_MASK_WINDOW) &&
              is(Mask::Kind::boolean, QATTN_MASK_BOOLEAN) &&
              is(Mask::Kind::additive, QATTN_MASK_ADDITIVE));
static_assert(is(Precision::high, QATTN_PRECISION_HIGH) &&
              is(Precision::fast, QATTN_PRECISION_FAST));

/// The enumerator with that number; the numbers run from 0 to `last`.
template <typename Enum>
Enum to_enum(const std::string& name, std::int32_t number, std::int32_t last) {
  if (number < 0 || number > last) {
    refuse(name + " is " + std::to_string(number) + " (allowed: the enumerators 0 to " +
           std::to_string(last) + ")");
  }
  return static_cast<Enum>(number);
}

// Which of the enumerators the argument takes is checked by the C++ API; `allowed` names them.
DataType to_data_type(const std::string& name, std::int32_t number, const char* allowed) {
  if (number < 0 || number > QATTN_BFLOAT16) {
    refuse(name + ".dtype is " + std::to_string(number) + " (allowed: " + allowed + ")");
  }
  return static_cast<DataType>(number);
}

Scale::Granularity to_granularity(const std::string& name, std::int32_t number) {
  return to_enum<Scale::Granularity>(name + ".granularity", number, QATTN_PER_CHANNEL);
}

// A field without a meaning yet must not be set: it may get one.
void check_reserved(const std::string& name, std::int32_t reserved) {
  if (reserved == 0) return;
  refuse(name + ".reserved is " + std::to_string(reserved) + " (allowed: 0)");
}

Shape to_shape(const std::int64_t (&shape)[4]) noexcept {
  return {shape[0], shape[1], shape[2], shape[3]};
}

Strides to_strides(const std::int64_t (&strides)[3]) noexcept {
  return {strides[0], strides[1], strides[2]};
}

}  // namespace

qattn_device default_device() noexcept {
  qattn_device device{};
  device.struct_size = sizeof device;
  return device;
}

qattn_tensor default_tensor() noexcept {
  qattn_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = QATTN_INT8;
  tensor.granularity = QATTN_PER_HEAD;
  return tensor;
}

qattn_output default_output() noexcept {
  qattn_output output{};
  output.struct_size = sizeof output;
  output.dtype = QATTN_FLOAT32;
  output.granularity = QATTN_PER_HEAD;
  return output;
}

qattn_options default_options() noexcept {
  const Options defaults;
  qattn_options options{};
  options.struct_size = sizeof options;
  options.mask = static_cast<std::int32_t>(defaults.mask.kind);
  options.precision = static_cast<std::int32_t>(defaults.precision);
  options.window_left = defaults.mask.window_left;
  options.window_right = defaults.mask.window_right;
  return options;
}

qattn_float_tensor default_float_tensor() noexcept {
  qattn_float_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = QATTN_FLOAT32;
  return tensor;
}

qattn_quantized default_quantized() noexcept {
  qattn_quantized out{};
  out.struct_size = sizeof out;
  out.granularity = QATTN_PER_HEAD;
  return out;
}

qattn_quantize_options default_quantize_options() noexcept {
  qattn_quantize_options options{};
  options.struct_size = sizeof options;
  return options;
}

Device to_device(const qattn_device* device) {
  const qattn_device given = read_struct("device", device, default_device());
  const auto kind = to_enum<Device::Kind>("device.kind", given.kind, QATTN_DEVICE_CUDA);
  if (kind == Device::Kind::cuda) return Device::cuda(given.ordinal, given.stream);
  if (given.ordinal != 0) {
    refuse("device.ordinal is " + std::to_string(given.ordinal) +
           " with device.kind QATTN_DEVICE_CPU (allowed: 0)");
  }
  if (given.stream != nullptr) {
    refuse("device.stream is set with device.kind QATTN_DEVICE_CPU (allowed: null)");
  }
  return Device::cpu();
}

Int8Tensor to_tensor(const char* name, const qattn_tensor* tensor) {
  const qattn_tensor given = read_struct(name, tensor, default_tensor());
  check_reserved(name, given.reserved);
  Int8Tensor result;
  result.data = given.data;
  result.dtype = to_data_type(name, given.dtype, "QATTN_INT8, QATTN_UINT8");
  result.shape = to_shape(given.shape);
  result.strides = to_strides(given.strides);
  result.scale = {given.scale, to_granularity(name, given.granularity), given.scale_block_tokens};
  result.zero_point = given.zero_point;
  result.layout.kind =
      to_enum<SequenceLayout::Kind>(std::string(name) + ".layout", given.layout, QATTN_PAGED);
  result.layout.sequences = given.sequences;
  result.layout.offsets = given.offsets;
  result.layout.lengths = given.lengths;
  result.layout.block_table = given.block_table;
  result.layout.block_table_stride = given.block_table_stride;
  return result;
}

OutputTensor to_output(const qattn_output* output) {
  const qattn_output given = read_struct("out", output, default_output());
  OutputTensor result;
  result.data = given.data;
  result.dtype =
      to_data_type("out", given.dtype, "QATTN_FLOAT32, QATTN_FLOAT16, QATTN_BFLOAT16, QATTN_INT8");
  result.shape = to_shape(given.shape);
  result.strides = to_strides(given.strides);
  result.scale = {given.scale, to_granularity("out", given.granularity), given.scale_block_tokens};
  return result;
}

Options to_options(const qattn_options* options) {
  Options result;
  if (options == nullptr) return result;
  const qattn_options given = read_struct("options", options, default_options());
  result.mask.kind = to_enum<Mask::Kind>("options.mask", given.mask, QATTN_MASK_ADDITIVE);
  // A struct that its caller filled with zeros sets no window.
  const bool zeros = given.window_left == 0 && given.window_right == 0;
  if (result.mask.kind == Mask::Kind::window || !zeros) {
    result.mask.window_left = given.window_left;
    result.mask.window_right = given.window_right;
  }
  result.mask.data = given.mask_data;
  result.mask.batch_stride = given.mask_strides[0];
  result.mask.head_stride = given.mask_strides[1];
  result.mask.query_stride = given.mask_strides[2];
  if (given.has_softmax_scale != 0) result.softmax_scale = given.softmax_scale;
  result.precision = to_enum<Precision>("options.precision", given.precision, QATTN_PRECISION_FAST);
  if (given.kernel != nullptr) result.kernel = given.kernel;
  result.lse = given.lse;
  result.workspace = given.workspace;
  result.workspace_bytes = given.workspace_bytes;
  result.threads = given.threads;
  result.executor = {given.executor, given.executor_context};
  result.soft_cap = given.soft_cap;
  result.alibi_slopes = given.alibi_slopes;
  result.sinks = given.sinks;
  return result;
}

FloatTensor to_float_tensor(const qattn_float_tensor* tensor) {
  const qattn_float_tensor given = read_struct("input", tensor, default_float_tensor());
  check_reserved("input", given.reserved);
  const DataType dtype =
      to_data_type("input", given.dtype, "QATTN_FLOAT32, QATTN_FLOAT16, QATTN_BFLOAT16");
  return {given.data, dtype, to_shape(given.shape), to_strides(given.strides)};
}

QuantizedTensor to_quantized(const qattn_quantized* out) {
  const qattn_quantized given = read_struct("out", out, default_quantized());
  check_reserved("out", given.reserved);
  QuantizedTensor result;
  result.data = given.data;
  result.strides = to_strides(given.strides);
  result.scale = given.scale;
  result.granularity = to_granularity("out", given.granularity);
  result.block_tokens = given.scale_block_tokens;
  return result;
}

QuantizeOptions to_quantize_options(const qattn_quantize_options* options) {
  QuantizeOptions result;
  if (options == nullptr) return result;
  const qattn_quantize_options given = read_struct("options", options, default_quantize_options());
  check_reserved("options", given.reserved);
  result.threads = given.threads;
  result.executor = {given.executor, given.executor_context};
  return result;
}

void set_contiguous(std::int64_t (&shape)[4], std::int64_t (&strides)[3], const Shape& extents) {
  const Strides steps = contiguous_strides(extents);
  shape[0] = extents.batch;
  shape[1] = extents.seq;
  shape[2] = extents.heads;
  shape[3] = extents.head_dim;
  strides[0] = steps.batch;
  strides[1] = steps.seq;
  strides[2] = steps.heads;
}

}  // namespace qattn::capi
