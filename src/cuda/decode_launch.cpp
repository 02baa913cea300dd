// Launches decode kernels: how many splits, where their results wait to be merged.
#include "cuda/decode_launch.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "cuda/error.hpp"
#include "cuda/kernel_launch.hpp"
#include "cuda/memory.hpp"
#include "cuda/relaxed_capture.hpp"
#include "qattn/error.hpp"

namespace qattn::cuda {
namespace {

// Far more than the keys and values of any device, and the products below fit their types.
constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 27;
// A larger batch takes several launches, each of thousands of blocks. As much as the library's
// memory pool keeps between calls.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20U;
// Beyond, the prefill kernels, whose blocks take 64 rows, read K and V less often.
constexpr std::int64_t kMaxRows = 64;
// With one split they also keep all of their warps busy from here on.
constexpr std::int64_t kMaxRowsOfOneSplit = 16;

std::int64_t splits_of(const core::Problem& problem) noexcept {
  return problem.seq_k == 0 ? 1 : (problem.seq_k - 1) / split_keys(problem.seq_k) + 1;
}

struct DecodePlan {
  std::int64_t splits;
  std::size_t tiles;  // in kDecodeRows
  std::int64_t row_blocks;
  std::int64_t batch_per_launch;
  std::size_t output_bytes;  // of a launch
  std::size_t state_bytes;

  std::size_t workspace_bytes() const noexcept { return output_bytes + state_bytes; }
};

DecodePlan plan_of(const core::Problem& problem) {
  DecodePlan plan = {};
  const std::int64_t rows = problem.rows();
  plan.splits = splits_of(problem);
  while (plan.tiles + 1 < kDecodeRows.size() && kDecodeRows[plan.tiles] < rows) ++plan.tiles;
  plan.row_blocks = (rows - 1) / kDecodeRows[plan.tiles] + 1;
  const std::int64_t blocks_per_batch = plan.splits * plan.row_blocks * problem.heads_kv;
  if (blocks_per_batch > kMaxBlocks) {
    throw Error(ErrorCode::unsupported,
                "seq_k * heads_kv of k is " + std::to_string(problem.seq_k) + " * " +
                    std::to_string(problem.heads_kv) + ": more than one launch covers");
  }
  plan.batch_per_launch = std::min(problem.batch, kMaxBlocks / blocks_per_batch);
  if (plan.splits == 1) return plan;
  const int head_dim = kCompiledHeadDims[head_dim_index(problem.head_dim)];
  const auto partials = static_cast<std::size_t>(plan.splits * rows * problem.heads_kv);
  const std::size_t output_bytes = partials * static_cast<std::size_t>(head_dim) * sizeof(float);
  const std::size_t state_bytes = partials * sizeof(SplitState);
  const auto fitting = static_cast<std::int64_t>(kWorkspaceBytes / (output_bytes + state_bytes));
  plan.batch_per_launch = std::min(plan.batch_per_launch, std::max<std::int64_t>(fitting, 1));
  plan.output_bytes = output_bytes * static_cast<std::size_t>(plan.batch_per_launch);
  plan.state_bytes = state_bytes * static_cast<std::size_t>(plan.batch_per_launch);
  return plan;
}

}  // namespace

bool decodes(const core::Problem& problem) noexcept {
  return problem.rows() <= (splits_of(problem) > 1 ? kMaxRows : kMaxRowsOfOneSplit);
}

std::size_t attention_workspace_bytes(const core::Problem& problem) {
  return decodes(problem) ? plan_of(problem).workspace_bytes() : 0;
}

/// Done once per kernel and device. The value is always the same, so that a race of two threads is
/// harmless.
bool DecodeFamily::prepare(const DecodeKernels& kernels, std::size_t index, std::size_t tiles,
                           int ordinal) {
  const auto device = static_cast<std::size_t>(ordinal);
  std::atomic<Prepared>* cached =
      device < kCachedDevices ? &prepared_[index][tiles][device] : nullptr;
  const Prepared known = cached == nullptr ? Prepared::no : cached->load(std::memory_order_acquire);
  if (known != Prepared::no) return known == Prepared::overlaps;
  const RelaxedCapture relaxed;  // the first use of a kernel loads it
  const DecodeKernel& split = kernels.split[tiles];
  const cudaError_t error = cudaFuncSetAttribute(
      split.function, cudaFuncAttributeMaxDynamicSharedMemorySize, split.shared_bytes);
  if (error != cudaSuccess) throw_error(error, (std::string("preparing ") + name_).c_str());
  const Prepared found =
      waits_for_preceding_kernels(kernels.merge.function) ? Prepared::overlaps : Prepared::yes;
  if (cached != nullptr) cached->store(found, std::memory_order_release);
  return found == Prepared::overlaps;
}

void DecodeFamily::launch(const core::Problem& problem, const LaunchTarget& target) {
  const DecodePlan plan = plan_of(problem);
  const std::size_t index = head_dim_index(problem.head_dim);
  const DecodeKernels kernels = get_(index);
  const bool overlap = prepare(kernels, index, plan.tiles, target.ordinal);

  DecodeParams params;
  params.attention = params_of(problem);
  params.attention.row_blocks = static_cast<std::uint32_t>(plan.row_blocks);
  params.splits = static_cast<std::uint32_t>(plan.splits);
  params.split_keys = split_keys(problem.seq_k);
  std::optional<StreamMemory> own;
  auto* workspace = static_cast<std::byte*>(target.workspace);
  if (target.workspace_bytes < plan.workspace_bytes()) {
    const RelaxedCapture relaxed;  // the first use makes the pool
    own.emplace(target.ordinal, target.stream, plan.workspace_bytes());
    workspace = own->data();
  }
  if (plan.splits > 1) {
    params.outputs = reinterpret_cast<float*>(workspace);
    params.states = reinterpret_cast<SplitState*>(workspace + plan.output_bytes);
  }
  for (std::int64_t batch = 0; batch < problem.batch; batch += plan.batch_per_launch) {
    const std::int64_t count = std::min(plan.batch_per_launch, problem.batch - batch);
    const std::int64_t pairs = count * problem.heads_kv;
    params.attention.first_batch = static_cast<std::uint32_t>(batch);
    params.attention.pairs = static_cast<std::uint32_t>(pairs);
    const DecodeKernel& split = kernels.split[plan.tiles];
    const std::int64_t split_blocks = pairs * plan.row_blocks * plan.splits;
    launch_kernel(name_, split.function,
                  {.grid = dim3(static_cast<unsigned>(split_blocks)),
                   .threads = split.threads,
                   .shared_bytes = split.shared_bytes},
                  &params, target.stream);
    if (plan.splits == 1) continue;
    const int merged_rows = params.splits > kMergeSplitsOfWarp ? 1 : kernels.merge.rows;
    const std::int64_t merge_blocks = (pairs * params.attention.rows - 1) / merged_rows + 1;
    launch_kernel(name_, kernels.merge.function,
                  {.grid = dim3(static_cast<unsigned>(merge_blocks)),
                   .threads = kernels.merge.threads,
                   .shared_bytes = kernels.merge.shared_bytes,
                   .overlaps = overlap},
                  &params, target.stream);
  }
}

}  // namespace qattn::cuda
