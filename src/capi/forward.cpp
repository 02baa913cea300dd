// Attention, quantisation and the initialisers of their arguments.
#include "qattn/forward.hpp"

#include <string>

#include "capi/convert.hpp"
#include "capi/status.hpp"
#include "capi/structs.hpp"
#include "qattn/quantize.hpp"

using qattn::Shape;
using qattn::capi::guarded;
using qattn::capi::set_contiguous;
using qattn::capi::to_device;
using qattn::capi::to_options;
using qattn::capi::to_output;
using qattn::capi::to_tensor;
using qattn::capi::write_struct;

extern "C" {

qattn_status qattn_tensor_init(qattn_tensor* tensor, size_t struct_size, const int8_t* data,
                               int64_t batch, int64_t seq, int64_t heads, int64_t head_dim,
                               const float* scale) {
  return guarded([&] {
    qattn_tensor value = qattn::capi::default_tensor();
    value.data = data;
    value.scale = scale;
    set_contiguous(value.shape, value.strides, Shape{batch, seq, heads, head_dim});
    write_struct("tensor", tensor, struct_size, value);
  });
}

qattn_status qattn_output_init(qattn_output* output, size_t struct_size, float* data, int64_t batch,
                               int64_t seq, int64_t heads, int64_t head_dim) {
  return guarded([&] {
    qattn_output value = qattn::capi::default_output();
    value.data = data;
    set_contiguous(value.shape, value.strides, Shape{batch, seq, heads, head_dim});
    write_struct("output", output, struct_size, value);
  });
}

qattn_status qattn_options_init(qattn_options* options, size_t struct_size) {
  return guarded(
      [&] { write_struct("options", options, struct_size, qattn::capi::default_options()); });
}

qattn_status qattn_forward(const qattn_device* device, const qattn_tensor* q, const qattn_tensor* k,
                           const qattn_tensor* v, const qattn_output* out,
                           const qattn_options* options) {
  return guarded([&] {
    qattn::forward(to_device(device), to_tensor("q", q), to_tensor("k", k), to_tensor("v", v),
                   to_output(out), to_options(options));
  });
}

qattn_status qattn_forward_contiguous(const qattn_device* device, const int8_t* q, const int8_t* k,
                                      const int8_t* v, const float* q_scale, const float* k_scale,
                                      const float* v_scale, float* out, int64_t batch, int64_t seq,
                                      int64_t heads, int64_t head_dim, int32_t causal) {
  return guarded([&] {
    qattn::forward(to_device(device), q, k, v, q_scale, k_scale, v_scale, out, batch, seq, heads,
                   head_dim, causal != 0);
  });
}

qattn_status qattn_workspace_bytes(const qattn_device* device, const qattn_tensor* q,
                                   const qattn_tensor* k, const qattn_tensor* v,
                                   const qattn_output* out, const qattn_options* options,
                                   size_t* bytes) {
  return guarded([&] {
    if (bytes == nullptr) qattn::capi::refuse("bytes is null (allowed: where to write the result)");
    *bytes = qattn::workspace_bytes(to_device(device), to_tensor("q", q), to_tensor("k", k),
                                    to_tensor("v", v), to_output(out), to_options(options));
  });
}

qattn_status qattn_float_tensor_init(qattn_float_tensor* tensor, size_t struct_size,
                                     const void* data, int32_t dtype, int64_t batch, int64_t seq,
                                     int64_t heads, int64_t head_dim) {
  return guarded([&] {
    qattn_float_tensor value = qattn::capi::default_float_tensor();
    value.data = data;
    value.dtype = dtype;
    set_contiguous(value.shape, value.strides, Shape{batch, seq, heads, head_dim});
    write_struct("tensor", tensor, struct_size, value);
  });
}

qattn_status qattn_quantized_init(qattn_quantized* out, size_t struct_size, int8_t* data,
                                  float* scale, int64_t batch, int64_t seq, int64_t heads,
                                  int64_t head_dim) {
  return guarded([&] {
    qattn_quantized value = qattn::capi::default_quantized();
    value.data = data;
    value.scale = scale;
    int64_t shape[4];
    set_contiguous(shape, value.strides, Shape{batch, seq, heads, head_dim});
    write_struct("out", out, struct_size, value);
  });
}

qattn_status qattn_quantize_options_init(qattn_quantize_options* options, size_t struct_size) {
  return guarded([&] {
    write_struct("options", options, struct_size, qattn::capi::default_quantize_options());
  });
}

qattn_status qattn_quantize(const qattn_device* device, const qattn_float_tensor* input,
                            const qattn_quantized* out, const qattn_quantize_options* options) {
  return guarded([&] {
    qattn::quantize(to_device(device), qattn::capi::to_float_tensor(input),
                    qattn::capi::to_quantized(out), qattn::capi::to_quantize_options(options));
  });
}

}  // extern "C"
