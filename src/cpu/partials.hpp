// Softmax states of single chunks of keys, on their way from the tasks that compute them to those
// that join them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qattn::cpu {

/// One state for every (batch entry, kv head) pair, chunk and row of the pair: at head_dim 128, 576
/// bytes for the 2048 keys and values (half a megabyte) that it stands for.
struct Partials {
  float* data = nullptr;  // bytes() bytes, 64-byte aligned
  std::int64_t chunks = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // padded_columns(head_dim)

  /// A state is `[kMaximum]`, `[kSum]` and from kOutput on the output: `columns` of them, of which
  /// those beyond head_dim are zeros.
  static constexpr std::int64_t kMaximum = 0;
  static constexpr std::int64_t kSum = 1;
  static constexpr std::int64_t kOutput = 16;

  constexpr float* state(std::int64_t pair, std::int64_t chunk, std::int64_t row) const noexcept {
    return data + ((pair * chunks + chunk) * rows + row) * (kOutput + columns);
  }
  constexpr std::size_t bytes(std::int64_t pairs) const noexcept {
    return static_cast<std::size_t>(pairs * chunks * rows * (kOutput + columns)) * sizeof(float);
  }
};

}  // namespace qattn::cpu
