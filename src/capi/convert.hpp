// Argument structs of the C API as those of the C++ API. All throw Error(invalid_argument) for
// null, impossible sizes and numbers that are no enumerator; what they mean is checked by the C++
// API.
#pragma once

#include "qattn/device.hpp"
#include "qattn/options.hpp"
#include "qattn/qattn.h"
#include "qattn/quantize.hpp"
#include "qattn/tensor.hpp"

namespace qattn::capi {

/// What the initialisers store, besides what they are given.
qattn_device default_device() noexcept;
qattn_tensor default_tensor() noexcept;
qattn_output default_output() noexcept;
qattn_options default_options() noexcept;
qattn_float_tensor default_float_tensor() noexcept;
qattn_quantized default_quantized() noexcept;
qattn_quantize_options default_quantize_options() noexcept;

Device to_device(const qattn_device* device);
/// `name` is the argument's: "q", "k" or "v".
Int8Tensor to_tensor(const char* name, const qattn_tensor* tensor);
OutputTensor to_output(const qattn_output* output);
/// Null gives the defaults.
Options to_options(const qattn_options* options);
FloatTensor to_float_tensor(const qattn_float_tensor* tensor);
QuantizedTensor to_quantized(const qattn_quantized* out);
/// Null gives the defaults.
QuantizeOptions to_quantize_options(const qattn_quantize_options* options);

/// Extents and contiguous strides of a struct.
void set_contiguous(std::int64_t (&shape)[4], std::int64_t (&strides)[3], const Shape& extents);

}  // namespace qattn::capi
