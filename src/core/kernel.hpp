// What a kernel is to the rest of the library: constant data and one function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/features.hpp"
#include "core/problem.hpp"
#include "qattn/device.hpp"
#include "qattn/options.hpp"

namespace qattn::core {

/// What a run may use besides the problem.
struct RunContext {
  Device device = Device::cpu();
  int threads = 0;            // CPU: at most this many; 0: OpenMP's own choice
  Executor executor;          // CPU: runs the tasks if set
  void* workspace = nullptr;  // of the caller, in the device's memory
  std::size_t workspace_bytes = 0;
  bool host_memory = false;  // CUDA: all tensors lie in host memory and are staged
};

/// Runs a problem that supports() accepted on a device that has the kernel's features. Throws
/// Error.
using RunFunction = void (*)(const Problem&, const RunContext&);
/// Device memory that a run wants beyond the tensors, in bytes.
using WorkspaceFunction = std::size_t (*)(const Problem&);

/// What a kernel can compute, as data that code compiled for the baseline evaluates.
struct Limits {
  int head_dim_max = 256;
  ExtraSet extras;  // implemented beyond the core of the API
};

/// A row of the kernel table.
struct Kernel {
  std::string_view name;  // "cpu/avx2"
  Device::Kind device = Device::Kind::cpu;
  FeatureSet needs;
  Limits limits;
  RunFunction run = nullptr;              // null: not compiled into this binary
  WorkspaceFunction workspace = nullptr;  // null: needs none
  std::string_view absent_reason;         // why run is null
  std::int64_t preferred_rows = 0;        // with fewer in a (batch, kv head) pair others come first
  bool automatic = true;                  // false: runs only when forced (the reference)
};

/// Whether a kernel can compute a problem.
enum class Support : std::uint8_t { yes, head_dim_too_large, extra_missing };
Support supports(const Limits& limits, const Problem& problem) noexcept;

/// Why supports() said no, for a person: names the argument and what is allowed.
std::string describe_refusal(const Limits& limits, const Problem& problem);

}  // namespace qattn::core
