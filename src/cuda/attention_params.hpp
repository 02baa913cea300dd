// What a problem alone determines of an attention kernel's parameters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/problem.hpp"
#include "cuda/attention.hpp"

namespace qattn::cuda {

/// The head_dims that kernels are compiled for; a problem takes the next larger one.
inline constexpr std::array kCompiledHeadDims = {32, 64, 96, 128, 192, 256};

/// Position in kCompiledHeadDims.
std::size_t head_dim_index(std::int64_t head_dim) noexcept;

/// function(head_dim) for the compiled head_dim of that position, an std::integral_constant.
template <std::size_t kIndex = 0, typename Function>
auto at_head_dim(std::size_t index, Function function) {
  if constexpr (kIndex + 1 < kCompiledHeadDims.size()) {
    if (index != kIndex) return at_head_dim<kIndex + 1>(index, function);
  }
  return function(std::integral_constant<int, kCompiledHeadDims[kIndex]>{});
}

/// The parameters but what belongs to a launch.
AttentionParams params_of(const core::Problem& problem);

}  // namespace qattn::cuda
