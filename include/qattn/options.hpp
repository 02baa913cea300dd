// What a call to forward() may vary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "qattn/mask.hpp"

namespace qattn {

/// How finely the softmax probabilities are quantised; docs/numerics.md states and proves the
/// bounds. Both are far below the error that int8 inputs bring with them.
enum class Precision : std::uint8_t {
  high,  ///< 16-bit probabilities: 5e-4 relative error at most on every row of the accuracy suite
  /// 8-bit probabilities, 16-bit where mass would be lost: 1.5e-2 at most on every row. Where that
  /// is so for many rows, as in models whose attention is sharp, it takes up to a fifth longer than
  /// `high` on a CPU and a half on CUDA; elsewhere it is the faster one. Measure on your tensors.
  fast,
};

/// Hook that lets the CPU kernels run on the caller's own thread pool instead of OpenMP.
struct Executor {
  /// Calls task(argument, i) exactly once for every i in [0, tasks), on any threads and in any
  /// order, and returns when all calls have. `task` never throws.
  using Run = void (*)(void* context, std::int64_t tasks,
                       void (*task)(void* argument, std::int64_t index), void* argument);
  Run run = nullptr;        ///< null: OpenMP
  void* context = nullptr;  ///< handed to run
};

/// Options of a call. The defaults are causal attention at high precision on all threads.
struct Options {
  Mask mask = Mask::causal();
  /// Factor of the scores, finite; 1 / sqrt(head_dim) when empty.
  std::optional<float> softmax_scale;
  Precision precision = Precision::high;
  /// Forces a kernel by name ("cpu/avx2"); empty: the environment variable QATTN_KERNEL, else the
  /// best one. A name that is unknown or not usable is an error, never a silent fall-back.
  /// QATTN_KERNEL applies only to the device that its kernel is for. It is read once, at the first
  /// use of the library in the process, like QATTN_VERBOSE.
  std::string kernel;
  /// Optional output (batch, heads_q, seq_q), contiguous, in the memory space of `out`: natural
  /// logarithm of sum_j exp(S[b,h,i,j]) over the visible keys; -infinity where there are none.
  float* lse = nullptr;
  /// Optional scratch memory in the device's memory, 256-byte aligned; see workspace_bytes().
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  /// CPU threads at most; 0: what OpenMP would use (OMP_NUM_THREADS, affinity). More than there are
  /// cores are started if asked for; where the system refuses one, OpenMP ends the process. A
  /// thread needs a stack of 32 KiB. With an executor: into how many parts work is cut, several for
  /// each.
  int threads = 0;
  Executor executor;

  /// S -> soft_cap * tanh(S / soft_cap) when positive; 0: off.
  float soft_cap = 0.0F;
  /// ALiBi: slope[heads_q], adds slope * (j - p) to the score of key j at query position p.
  const float* alibi_slopes = nullptr;
  /// Attention sinks: logit[heads_q], takes part in the denominator alone.
  const float* sinks = nullptr;
};

}  // namespace qattn
