// Launching attention kernels: the host side that all families share.
#pragma once

#include <atomic>
#include <cstddef>

#include "core/problem.hpp"
#include "cuda/attention.hpp"
#include "cuda/attention_params.hpp"
#include "cuda/decode_launch.hpp"
#include "cuda/run.hpp"

namespace qattn::cuda {

/// The kernels of one family. Objects live as long as the process.
class AttentionFamily {
 public:
  /// Compiled kernel of kCompiledHeadDims[index].
  using Get = AttentionKernel (*)(std::size_t index, Precision precision);

  /// `name` as in "launching cuda/sm80".
  constexpr AttentionFamily(const char* name, Get get, DecodeFamily::Get get_decode) noexcept
      : name_(name), get_(get), decode_(name, get_decode) {}

  /// Launches `problem`. Throws Error(unsupported | out_of_memory | cuda).
  void launch(const core::Problem& problem, const LaunchTarget& target);

 private:
  static constexpr std::size_t kCachedDevices = 64;

  /// A kernel as far as its preparation is concerned.
  struct Prepared {
    const void* function;
    int shared_bytes;  // dynamic, at most
    bool overlaps;     // may be launched to overlap the kernel before it
  };
  /// What is remembered of a kernel on a device; 0 until it has been prepared.
  enum State : int { kUnprepared, kReady, kOverlapping };
  /// Kinds of kernels of one head_dim and precision.
  enum Kind : std::size_t { kRegular, kTiny, kKinds };

  State prepare(const Prepared& kernel, Kind kind, std::size_t index, Precision precision,
                int ordinal);
  void launch_regular(const core::Problem& problem, const LaunchTarget& target,
                      const AttentionKernel& kernel, std::size_t index);
  void launch_tiny(const core::Problem& problem, const LaunchTarget& target,
                   const TinyKernel& kernel, std::size_t index);

  const char* name_;
  Get get_;
  DecodeFamily decode_;
  std::atomic<State> states_[kKinds][kCompiledHeadDims.size()][2][kCachedDevices] = {};
};

}  // namespace qattn::cuda
