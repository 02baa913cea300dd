// What a problem alone determines of an attention kernel's parameters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/problem.hpp"
#include "cuda/attention.hpp"

namespace qattn::cuda {

/// The head_dims that kernels are compiled for; a problem takes the next larger one.
inline constexpr std::array kCompiledHeadDims = {32, 64, 128, 192, 256};

/// Position in kCompiledHeadDims.
std::size_t head_dim_index(std::int64_t head_dim) noexcept;

/// The parameters but what belongs to a launch.
AttentionParams params_of(const core::Problem& problem);

}  // namespace qattn::cuda
