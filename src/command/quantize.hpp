// Symmetric int8 quantisation of float tensors, one scale per head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qattn::command {

/// A quantised tensor: real value = scale[head] * value.
struct Quantized {
  std::vector<std::int8_t> values;
  std::vector<float> scales;  // one per head
};

/// Quantises a contiguous (batch, seq, heads, head_dim) tensor with qattn::quantize(). `name` says
/// whose tensor it is in an error. Throws InputError for NaN or infinite entries.
Quantized quantize(const std::vector<float>& tensor, std::int64_t heads, std::int64_t head_dim,
                   const std::string& name);

}  // namespace qattn::command
