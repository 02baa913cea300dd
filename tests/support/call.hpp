// A small call that is right, for tests to spoil.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/run.hpp"

namespace qattn::test {

/// q (2, 3, 4, 16), k and v (2, 5, 2, 16) on the CPU; lse is asked for.
struct Call {
  Call() : out_memory(Device::cpu(), 2 * 3 * 4 * 16), lse_memory(Device::cpu(), 2 * 4 * 3) {
    q = Int8Tensor(bytes.data(), {2, 3, 4, 16}, per_head(scales.data()));
    k = Int8Tensor(bytes.data() + 512, {2, 5, 2, 16}, per_head(scales.data()));
    v = Int8Tensor(bytes.data() + 1024, {2, 5, 2, 16}, per_head(scales.data()));
    out = OutputTensor(out_memory.data(), {2, 3, 4, 16});
    options.lse = lse_memory.data();
  }

  std::vector<std::int8_t> bytes = std::vector<std::int8_t>(2048, 3);
  std::vector<float> scales = std::vector<float>(8, 0.01F);
  BorderedFloats out_memory;
  BorderedFloats lse_memory;
  std::array<float, 16> more_floats{};
  alignas(256) std::array<std::byte, 512> workspace{};
  Int8Tensor q, k, v;
  OutputTensor out;
  Options options;
  Device device = Device::cpu();
};

}  // namespace qattn::test
