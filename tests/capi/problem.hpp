// A problem as C and C++ callers hold it.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "qattn/qattn.h"
#include "qattn/qattn.hpp"

namespace qattn::test {

/// Random tensors with scales, and the argument structs of both APIs for them. The structs point
/// into the problem, which must stay where it is.
class CapiProblem {
 public:
  CapiProblem(std::int64_t batch, std::int64_t seq_q, std::int64_t seq_k, std::int64_t heads_q,
              std::int64_t heads_kv, std::int64_t head_dim)
      : q_shape{batch, seq_q, heads_q, head_dim}, kv_shape{batch, seq_k, heads_kv, head_dim} {
    fill(q, q_shape);
    fill(k, kv_shape);
    fill(v, kv_shape);
    q_scale = scales(heads_q, 0.01F);
    k_scale = scales(heads_kv, 0.02F);
    v_scale = scales(heads_kv, 0.03F);
    qattn_device_cpu(&device, sizeof device);
    qattn_tensor_init(&c_q, sizeof c_q, q.data(), batch, seq_q, heads_q, head_dim, q_scale.data());
    qattn_tensor_init(&c_k, sizeof c_k, k.data(), batch, seq_k, heads_kv, head_dim, k_scale.data());
    qattn_tensor_init(&c_v, sizeof c_v, v.data(), batch, seq_k, heads_kv, head_dim, v_scale.data());
    qattn_options_init(&options, sizeof options);
  }
  CapiProblem(const CapiProblem&) = delete;
  CapiProblem& operator=(const CapiProblem&) = delete;

  std::size_t out_size() const {
    return static_cast<std::size_t>(q_shape.batch * q_shape.seq * q_shape.heads * q_shape.head_dim);
  }
  std::size_t lse_size() const {
    return static_cast<std::size_t>(q_shape.batch * q_shape.seq * q_shape.heads);
  }
  qattn_output c_out(float* data) const {
    qattn_output out;
    qattn_output_init(&out, sizeof out, data, q_shape.batch, q_shape.seq, q_shape.heads,
                      q_shape.head_dim);
    return out;
  }
  /// qattn_forward() with `options` into `data`.
  qattn_status run(float* data) const {
    const qattn_output out = c_out(data);
    return qattn_forward(&device, &c_q, &c_k, &c_v, &out, &options);
  }
  Int8Tensor cpp_q() const { return {q.data(), q_shape, per_head(q_scale.data())}; }
  Int8Tensor cpp_k() const { return {k.data(), kv_shape, per_head(k_scale.data())}; }
  Int8Tensor cpp_v() const { return {v.data(), kv_shape, per_head(v_scale.data())}; }

  Shape q_shape;
  Shape kv_shape;
  std::vector<std::int8_t> q, k, v;
  std::vector<float> q_scale, k_scale, v_scale;
  qattn_device device;
  qattn_tensor c_q, c_k, c_v;
  qattn_options options;

 private:
  void fill(std::vector<std::int8_t>& tensor, const Shape& shape) {
    std::uniform_int_distribution<int> any(-128, 127);
    tensor.resize(static_cast<std::size_t>(shape.batch * shape.seq * shape.heads * shape.head_dim));
    for (std::int8_t& x : tensor) x = static_cast<std::int8_t>(any(random_));
  }
  // Distinct per head.
  static std::vector<float> scales(std::int64_t heads, float first) {
    std::vector<float> result;
    for (std::int64_t h = 0; h < heads; ++h) {
      result.push_back(first * static_cast<float>(1 + h));
    }
    return result;
  }

  std::mt19937 random_{7};
};

/// Bits of floats: NaN equals itself, and -0 is not 0.
inline std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> result(values.size());
  if (!values.empty()) std::memcpy(result.data(), values.data(), 4 * values.size());
  return result;
}

}  // namespace qattn::test
