// Launches attention kernels: picks the compiled one, fills its parameters.
#include "cuda/attention_launch.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "cuda/attention_params.hpp"
#include "cuda/error.hpp"
#include "cuda/kernel_launch.hpp"
#include "cuda/properties.hpp"
#include "cuda/relaxed_capture.hpp"
#include "cuda/tensor_map.hpp"
#include "cuda/tiny/policy.hpp"
#include "qattn/error.hpp"

namespace qattn::cuda {
namespace {

constexpr std::int64_t kMaxBlocks = 2147483647;  // of gridDim.x
// Eight blocks a pair in the tiny kernel, each of which reads all keys.
constexpr std::int64_t kTinyProblemRows = 128;

/// Pairs whose blocks are scheduled together. Those whose K and V fit a third of the L2, since
/// blocks of other pairs and the output pass through it; but all pairs where a causal mask makes
/// the rows of a pair differ much. The blocks of a section run longest first, and at the end of
/// each the multiprocessors that got short ones would wait: on an H200 that cost 12 % of (1, 16384,
/// 16, 128) and more of shorter sequences, while the device memory has bandwidth to spare.
std::int64_t section_pairs(const core::Problem& problem, int ordinal) {
  const bool rows_differ = problem.mask == Mask::Kind::causal && 2 * problem.seq_q > problem.seq_k;
  if (rows_differ) return std::numeric_limits<std::int64_t>::max();
  const std::int64_t pair_bytes = std::max<std::int64_t>(2 * problem.seq_k * problem.head_dim, 1);
  return std::max<std::int64_t>(properties(ordinal).l2_bytes / 3 / pair_bytes, 1);
}

/// Whether the tokens of every tensor lie as close together as the tiny kernel wants them.
bool has_short_strides(const core::Problem& problem) noexcept {
  std::int64_t bits = 0;
  if (problem.seq_q > 1) bits |= problem.q.strides.seq | problem.out.strides.seq;
  if (problem.seq_k > 1) bits |= problem.k.strides.seq | problem.v.strides.seq;
  return bits >> 32 == 0;
}

/// Whether a problem is one for the tiny kernel. Depends neither on the batch nor on the heads,
/// since the numbers differ from those of other kernels.
bool is_tiny(const core::Problem& problem) noexcept {
  return problem.seq_k <= kGroupKeys && problem.rows() <= kTinyProblemRows &&
         has_short_strides(problem);
}

}  // namespace

/// Done once per kernel and device. The value is always the same, so that a race of two threads is
/// harmless.
AttentionFamily::State AttentionFamily::prepare(const Prepared& kernel, Kind kind,
                                                std::size_t index, Precision precision,
                                                int ordinal) {
  const auto device = static_cast<std::size_t>(ordinal);
  std::atomic<State>* cached =
      device < kCachedDevices ? &states_[kind][index][static_cast<std::size_t>(precision)][device]
                              : nullptr;
  if (cached != nullptr) {
    const State state = cached->load(std::memory_order_acquire);
    if (state != kUnprepared) return state;
  }
  const RelaxedCapture relaxed;  // the first use of a kernel loads it
  const cudaError_t error = cudaFuncSetAttribute(
      kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes);
  if (error != cudaSuccess) throw_error(error, (std::string("preparing ") + name_).c_str());
  const State state =
      kernel.overlaps && waits_for_preceding_kernels(kernel.function) ? kOverlapping : kReady;
  if (cached != nullptr) cached->store(state, std::memory_order_release);
  return state;
}

void AttentionFamily::launch_tiny(const core::Problem& problem, const LaunchTarget& target,
                                  const TinyKernel& kernel, std::size_t index) {
  constexpr std::int64_t kBatchMax = 65535;  // of gridDim.z
  const State state = prepare({kernel.function, kernel.shared_bytes, kTinyOverlapsLaunches}, kTiny,
                              index, problem.precision, target.ordinal);
  AttentionParams params = params_of(problem);
  params.row_blocks = static_cast<std::uint32_t>((params.rows - 1) / kTinyRows + 1);
  LaunchShape shape = {.threads = kernel.threads,
                       .shared_bytes = kernel.shared_bytes,
                       .overlaps = state == kOverlapping};
  for (std::int64_t batch = 0; batch < problem.batch; batch += kBatchMax) {
    params.first_batch = static_cast<std::uint32_t>(batch);
    shape.grid = dim3(static_cast<unsigned>(params.heads_kv), params.row_blocks,
                      static_cast<unsigned>(std::min(kBatchMax, problem.batch - batch)));
    launch_kernel(name_, kernel.function, shape, &params, target.stream);
  }
}

void AttentionFamily::launch_regular(const core::Problem& problem, const LaunchTarget& target,
                                     const AttentionKernel& kernel, std::size_t index) {
  prepare({kernel.function, kernel.shared_bytes, false}, kRegular, index, problem.precision,
          target.ordinal);
  AttentionParams params = params_of(problem);
  const std::int64_t row_blocks = (params.rows - 1) / kernel.rows + 1;
  if (row_blocks > kMaxBlocks / problem.heads_kv) {
    throw Error(ErrorCode::unsupported, "seq_q * heads_q of q is " +
                                            std::to_string(problem.seq_q * problem.heads_q) +
                                            ": more than one launch of " + name_ + " covers");
  }
  describe_tensors(params, problem, kernel);
  params.row_blocks = static_cast<std::uint32_t>(row_blocks);
  // The grid is one-dimensional; batches beyond its limit take further launches.
  const std::int64_t blocks_per_batch = row_blocks * problem.heads_kv;
  const std::int64_t batch_per_launch = std::min(problem.batch, kMaxBlocks / blocks_per_batch);
  for (std::int64_t batch = 0; batch < problem.batch; batch += batch_per_launch) {
    const std::int64_t count = std::min(batch_per_launch, problem.batch - batch);
    const std::int64_t pairs = count * problem.heads_kv;
    params.first_batch = static_cast<std::uint32_t>(batch);
    params.pairs = static_cast<std::uint32_t>(pairs);
    params.section_pairs =
        static_cast<std::uint32_t>(std::min(pairs, section_pairs(problem, target.ordinal)));
    std::int64_t blocks = pairs * row_blocks;
    if (kernel.persistent) {
      blocks = std::min<std::int64_t>(blocks, properties(target.ordinal).multiprocessors);
    }
    const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(blocks)),
                               .threads = kernel.threads,
                               .shared_bytes = kernel.shared_bytes};
    launch_kernel(name_, kernel.function, shape, &params, target.stream);
  }
}

void AttentionFamily::launch(const core::Problem& problem, const LaunchTarget& target) {
  const std::size_t index = head_dim_index(problem.head_dim);
  const AttentionKernel kernel = get_(index, problem.precision);
  if (is_tiny(problem)) {
    launch_tiny(problem, target, kernel.tiny, index);
  } else if (decodes(problem)) {
    decode_.launch(problem, target);
  } else {
    launch_regular(problem, target, kernel, index);
  }
}

}  // namespace qattn::cuda
