// What a problem alone determines of an attention kernel's parameters.
#include "cuda/attention_params.hpp"

#include <algorithm>

#include "core/view.hpp"

namespace qattn::cuda {
namespace {

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

}  // namespace

std::size_t head_dim_index(std::int64_t head_dim) noexcept {
  std::size_t index = 0;
  while (kCompiledHeadDims[index] < head_dim) ++index;
  return index;
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
  params.out = {problem.out.data, problem.out.dtype};
  params.out_batch_stride = problem.out.strides.batch;
  params.out_seq_stride = problem.out.strides.seq;
  params.out_head_stride = problem.out.strides.heads;
  const std::int64_t out_bytes = core::element_bytes(problem.out.dtype);
  params.out_aligned = shared_alignment(problem.out.data, problem.out.strides, q_shape,
                                        out_bytes) >= 4 * static_cast<std::uint64_t>(out_bytes);
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

}  // namespace qattn::cuda
