// Launching decode kernels: the host side that all families share.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/problem.hpp"
#include "cuda/attention_params.hpp"
#include "cuda/decode.hpp"
#include "cuda/run.hpp"

namespace qattn::cuda {

/// Whether a problem that is not tiny is one for the decode kernels. Depends on its rows and keys
/// alone, never on the batch or the heads, since the numbers differ.
bool decodes(const core::Problem& problem) noexcept;

/// The kernel table's WorkspaceFunction, for every family. Throws Error(unsupported).
std::size_t attention_workspace_bytes(const core::Problem& problem);

/// The decode kernels of one family. Objects live as long as the process.
class DecodeFamily {
 public:
  /// Compiled kernels of kCompiledHeadDims[index].
  using Get = DecodeKernels (*)(std::size_t index);

  /// `name` as in "launching cuda/sm80".
  constexpr DecodeFamily(const char* name, Get get) noexcept : name_(name), get_(get) {}

  /// Launches a problem that decodes() accepted. Throws Error(unsupported | out_of_memory | cuda).
  void launch(const core::Problem& problem, const LaunchTarget& target);

 private:
  static constexpr std::size_t kCachedDevices = 64;
  enum class Prepared : std::uint8_t { no, yes, overlaps };

  /// Grants `kernels.split[tiles]` its shared memory. Whether the merge may begin before it ends.
  bool prepare(const DecodeKernels& kernels, std::size_t index, std::size_t tiles, int ordinal);

  const char* name_;
  Get get_;
  // Per kernel and device.
  std::atomic<Prepared> prepared_[kCompiledHeadDims.size()][kDecodeRows.size()][kCachedDevices] =
      {};
};

}  // namespace qattn::cuda
