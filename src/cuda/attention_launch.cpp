// Launches attention kernels: picks the compiled one, fills its parameters.
#include "cuda/attention_launch.hpp"

#include <algorithm>
#include <string>

#include "cuda/error.hpp"
#include "cuda/properties.hpp"
#include "cuda/relaxed_capture.hpp"
#include "qattn/error.hpp"

namespace qattn::cuda {
namespace {

constexpr std::int64_t kMaxBlocks = 2147483647;  // of gridDim.x

/// Position in kCompiledHeadDims.
std::size_t head_dim_index(std::int64_t head_dim) noexcept {
  std::size_t index = 0;
  while (kCompiledHeadDims[index] < head_dim) ++index;
  return index;
}

/// Largest power of two that divides `value`; 256 for 0.
std::uint64_t power_of_two_in(std::int64_t value) noexcept {
  const auto bits = static_cast<std::uint64_t>(value);
  return bits == 0 ? 256 : bits & (~bits + 1);
}

/// Alignment, in elements of `element_bytes`, that an address and the strides in use share: the
/// largest power of two that divides them all, in bytes.
std::uint64_t shared_alignment(const void* data, const Strides& strides, const Shape& shape,
                               std::int64_t element_bytes) noexcept {
  auto bits = reinterpret_cast<std::uintptr_t>(data);
  const auto add = [&](std::int64_t extent, std::int64_t stride) {
    if (extent > 1) bits |= static_cast<std::uintptr_t>(stride * element_bytes);
  };
  add(shape.batch, strides.batch);
  add(shape.seq, strides.seq);
  add(shape.heads, strides.heads);
  return power_of_two_in(static_cast<std::int64_t>(bits));
}

AttentionInput input_of(const core::InputRef& ref, const Shape& shape) noexcept {
  AttentionInput input;
  input.data = ref.data;
  input.batch_stride = ref.strides.batch;
  input.seq_stride = ref.strides.seq;
  input.head_stride = ref.strides.heads;
  input.scale = ref.scale;
  // The head_dim counts too: a copy of 16 bytes never reaches past the end of a row, so that no
  // byte outside the tensor is touched even by a copy that would ignore it.
  const std::uint64_t alignment =
      std::min(shared_alignment(ref.data, ref.strides, shape, 1), power_of_two_in(shape.head_dim));
  input.alignment = alignment >= 16  ? Alignment::bytes_16
                    : alignment >= 4 ? Alignment::bytes_4
                                     : Alignment::bytes_1;
  return input;
}

AttentionParams params_of(const core::Problem& problem) {
  const Shape q_shape = {problem.batch, problem.seq_q, problem.heads_q, problem.head_dim};
  const Shape kv_shape = {problem.batch, problem.seq_k, problem.heads_kv, problem.head_dim};
  AttentionParams params;
  params.q = input_of(problem.q, q_shape);
  params.k = input_of(problem.k, kv_shape);
  params.v = input_of(problem.v, kv_shape);
  if (problem.seq_k == 0) {  // k and v may have no scales then; kernels read one of each
    params.k.scale = problem.q.scale;
    params.v.scale = problem.q.scale;
  }
  params.out = problem.out.data;
  params.out_batch_stride = problem.out.strides.batch;
  params.out_seq_stride = problem.out.strides.seq;
  params.out_head_stride = problem.out.strides.heads;
  params.out_aligned =
      shared_alignment(problem.out.data, problem.out.strides, q_shape, sizeof(float)) >= 16;
  params.lse = problem.lse;
  params.softmax_scale = problem.softmax_scale;
  params.rows = problem.seq_q * problem.group_size();
  params.seq_q = static_cast<std::int32_t>(problem.seq_q);
  params.seq_k = static_cast<std::int32_t>(problem.seq_k);
  params.heads_kv = static_cast<std::int32_t>(problem.heads_kv);
  params.group_size = static_cast<std::int32_t>(problem.group_size());
  params.head_dim = static_cast<std::int32_t>(problem.head_dim);
  params.causal = problem.mask == Mask::Kind::causal;
  return params;
}

/// Pairs whose K and V fit a third of the L2: blocks of other pairs and the output pass through it.
std::int64_t section_pairs(const core::Problem& problem, int ordinal) {
  const std::int64_t pair_bytes = std::max<std::int64_t>(2 * problem.seq_k * problem.head_dim, 1);
  return std::max<std::int64_t>(properties(ordinal).l2_bytes / 3 / pair_bytes, 1);
}

void launch_blocks(const char* name, const AttentionKernel& kernel, AttentionParams& params,
                   std::int64_t blocks, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(kernel.shared_bytes);
  config.stream = stream;
  void* arguments[] = {&params};
  const cudaError_t error = cudaLaunchKernelExC(&config, kernel.function, arguments);
  if (error != cudaSuccess) throw_error(error, (std::string("launching ") + name).c_str());
}

}  // namespace

/// Done once per kernel and device. The value is always the same, so that a race of two threads is
/// harmless.
void AttentionFamily::allow_shared_memory(const AttentionKernel& kernel, std::size_t index,
                                          Precision precision, int ordinal) {
  const auto device = static_cast<std::size_t>(ordinal);
  std::atomic<bool>* cached = device < kCachedDevices
                                  ? &allowed_[index][static_cast<std::size_t>(precision)][device]
                                  : nullptr;
  if (cached != nullptr && cached->load(std::memory_order_acquire)) return;
  const RelaxedCapture relaxed;  // the first use of a kernel loads it
  const cudaError_t error = cudaFuncSetAttribute(
      kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes);
  if (error != cudaSuccess) throw_error(error, (std::string("preparing ") + name_).c_str());
  if (cached != nullptr) cached->store(true, std::memory_order_release);
}

void AttentionFamily::launch(const core::Problem& problem, const LaunchTarget& target) {
  const std::size_t index = head_dim_index(problem.head_dim);
  const AttentionKernel kernel = get_(index, problem.precision);
  allow_shared_memory(kernel, index, problem.precision, target.ordinal);

  AttentionParams params = params_of(problem);
  const std::int64_t row_blocks = (params.rows - 1) / kernel.rows + 1;
  if (row_blocks > kMaxBlocks / problem.heads_kv) {
    throw Error(ErrorCode::unsupported, "seq_q * heads_q of q is " +
                                            std::to_string(problem.seq_q * problem.heads_q) +
                                            ": more than one launch of " + name_ + " covers");
  }
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
    launch_blocks(name_, kernel, params, pairs * row_blocks, target.stream);
  }
}

}  // namespace qattn::cuda
