// Launching attention kernels: the host side that all families share.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "core/problem.hpp"
#include "cuda/attention.hpp"
#include "cuda/run.hpp"

namespace qattn::cuda {

/// The head_dims that kernels are compiled for; a problem takes the next larger one.
inline constexpr std::array kCompiledHeadDims = {32, 64, 128, 192, 256};

/// The kernels of one family. Objects live as long as the process.
class AttentionFamily {
 public:
  /// Compiled kernel of kCompiledHeadDims[index].
  using Get = AttentionKernel (*)(std::size_t index, Precision precision);

  /// `name` as in "launching cuda/sm80".
  constexpr AttentionFamily(const char* name, Get get) noexcept : name_(name), get_(get) {}

  /// Launches `problem`. Throws Error(unsupported | cuda).
  void launch(const core::Problem& problem, const LaunchTarget& target);

 private:
  static constexpr std::size_t kCachedDevices = 64;

  void allow_shared_memory(const AttentionKernel& kernel, std::size_t index, Precision precision,
                           int ordinal);

  const char* name_;
  Get get_;
  // Per kernel and device: whether it has been granted its shared memory.
  std::atomic<bool> allowed_[kCompiledHeadDims.size()][2][kCachedDevices] = {};
};

}  // namespace qattn::cuda
