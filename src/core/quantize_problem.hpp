// A validated, normalised call of quantize(): what both devices are given.
#pragma once

#include <cstdint>

#include "qattn/tensor.hpp"

namespace qattn::core {

/// Per-head quantisation. heads and head_dim are positive, batch and seq may be 0; strides as in
/// InputRef; pointers are aligned to their elements.
struct QuantizeProblem {
  const void* input = nullptr;
  DataType dtype = DataType::float32;  // float32, float16, bfloat16
  Strides input_strides;
  std::int8_t* out = nullptr;
  Strides out_strides;
  float* scale = nullptr;  // [heads]
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;

  /// Rows of head_dim elements of one head.
  std::int64_t rows() const noexcept { return batch * seq; }
};

}  // namespace qattn::core
