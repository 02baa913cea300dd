#include "cuda/staging/plan.hpp"

#include <algorithm>

#include "core/view.hpp"
#include "qattn/error.hpp"

namespace qattn::cuda::staging {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::int64_t kFloatBytes = sizeof(float);

[[noreturn]] void throw_too_large() {
  throw Error(ErrorCode::out_of_memory, "a tensor is too large to be copied to the device");
}

// Strides may overlap, so that a tensor has more elements than there is memory.
std::size_t packed_bytes(const Shape& shape, std::int64_t element_bytes) {
  std::int64_t bytes = element_bytes;
  for (const std::int64_t extent : {shape.batch, shape.seq, shape.heads, shape.head_dim}) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) throw_too_large();
  }
  return static_cast<std::size_t>(bytes);
}

// How much of each dimension a part has.
struct Cut {
  std::int64_t batches;
  std::int64_t heads;
};

// Batch entries first: their tensors lie in longer stretches of memory than those of heads.
Cut cut(const core::Problem& problem, std::int64_t parts) {
  if (problem.batch >= parts) return {(problem.batch - 1) / parts + 1, problem.heads_kv};
  const std::int64_t of_heads = std::min((parts - 1) / problem.batch + 1, problem.heads_kv);
  return {1, (problem.heads_kv - 1) / of_heads + 1};
}

Shape query_shape(const core::Problem& p) { return {p.batch, p.seq_q, p.heads_q, p.head_dim}; }
Shape key_shape(const core::Problem& p) { return {p.batch, p.seq_k, p.heads_kv, p.head_dim}; }

// lse (batch, heads_q, seq_q), of which `part` has a block that starts at its pointer.
HostRows lse_rows(const core::Problem& part, std::int64_t heads_q) {
  HostRows rows;
  if (part.lse == nullptr) return rows;
  rows.data = reinterpret_cast<std::byte*>(part.lse);
  rows.count = {1, part.batch, part.heads_q};
  rows.stride = {0, heads_q * part.seq_q * kFloatBytes, part.seq_q * kFloatBytes};
  rows.row_bytes = part.seq_q * kFloatBytes;
  return joined(rows);
}

}  // namespace

Plan::Plan(const core::Problem& problem, std::size_t part_bytes, std::size_t max_parts) {
  const std::int64_t out_bytes = core::element_bytes(problem.out.dtype);
  // Of q, out and room for lse; of k and v.
  const std::size_t rows = packed_bytes(query_shape(problem), 1 + out_bytes + kFloatBytes);
  const std::size_t keys = packed_bytes(key_shape(problem), 2);
  scales_ = {scale_tensor("copying q to the device", problem.q.scale, problem.heads_q),
             scale_tensor("copying k to the device", problem.k.scale, problem.heads_kv),
             scale_tensor("copying v to the device", problem.v.scale, problem.heads_kv)};

  const std::size_t parts =
      std::clamp<std::size_t>(rows / part_bytes + keys / part_bytes, 1, max_parts);
  const Cut each = cut(problem, static_cast<std::int64_t>(parts));
  for (std::int64_t b = 0; b < problem.batch; b += each.batches) {
    for (std::int64_t h = 0; h < problem.heads_kv; h += each.heads) {
      add_part(problem, b, std::min(each.batches, problem.batch - b), h,
               std::min(each.heads, problem.heads_kv - h));
    }
  }
}

void Plan::add_part(const core::Problem& whole, std::int64_t batch, std::int64_t batches,
                    std::int64_t head, std::int64_t heads) {
  Part part;
  part.first_head_kv = head;
  core::Problem& p = part.problem = whole;
  const std::int64_t head_q = head * whole.group_size();
  p.batch = batches;
  p.heads_kv = heads;
  p.heads_q = heads * whole.group_size();
  p.q.data = whole.q.row(batch, 0, head_q);
  if (whole.seq_k > 0) {  // else both may be null
    p.k.data = whole.k.row(batch, 0, head);
    p.v.data = whole.v.row(batch, 0, head);
  }
  const std::int64_t out_bytes = core::element_bytes(whole.out.dtype);
  p.out.data = static_cast<std::byte*>(whole.out.data) +
               (batch * whole.out.strides.batch + head_q * whole.out.strides.heads) * out_bytes;
  if (whole.lse != nullptr) p.lse = whole.lse_row(batch, head_q);
  part.inputs = {
      tensor("copying q to the device", rows_of(p.q.data, query_shape(p), p.q.strides, 1)),
      tensor("copying k to the device", rows_of(p.k.data, key_shape(p), p.k.strides, 1)),
      tensor("copying v to the device", rows_of(p.v.data, key_shape(p), p.v.strides, 1))};
  part.outputs = {tensor("copying out from the device",
                         rows_of(p.out.data, query_shape(p), p.out.strides, out_bytes)),
                  tensor("copying lse from the device", lse_rows(p, whole.heads_q))};
  parts_.push_back(part);
}

core::Problem Plan::on_device(const Part& part, std::byte* memory) const noexcept {
  core::Problem p = part.problem;
  const auto place = [&](core::InputRef& input, const Shape& shape, std::size_t i,
                         std::int64_t head) {
    input.data = reinterpret_cast<const std::int8_t*>(memory + part.inputs[i].offset);
    input.strides = contiguous_strides(shape);
    input.scale = reinterpret_cast<const float*>(memory + scales_[i].offset) + head;
  };
  place(p.q, query_shape(p), 0, part.first_head_kv * p.group_size());
  place(p.k, key_shape(p), 1, part.first_head_kv);
  place(p.v, key_shape(p), 2, part.first_head_kv);
  p.out.data = memory + part.outputs[0].offset;
  p.out.strides = contiguous_strides(query_shape(p));
  if (p.lse != nullptr) p.lse = reinterpret_cast<float*>(memory + part.outputs[1].offset);
  return p;
}

std::size_t Plan::reserve(std::size_t bytes) {
  const std::size_t offset = bytes_;
  if (__builtin_add_overflow(bytes_, bytes, &bytes_) ||
      __builtin_add_overflow(bytes_, kAlignment - 1, &bytes_)) {
    throw_too_large();
  }
  bytes_ -= bytes_ % kAlignment;
  return offset;
}

StagedTensor Plan::tensor(const char* what, const HostRows& rows) {
  return {what, rows, reserve(static_cast<std::size_t>(rows.bytes()))};
}

// Scales of k and v may be null where there are no keys; none is read then.
StagedTensor Plan::scale_tensor(const char* what, const float* scale, std::int64_t heads) {
  const std::int64_t entries = scale == nullptr ? 0 : heads;
  return tensor(what, rows_of(scale, {1, 1, 1, entries}, {}, kFloatBytes));
}

}  // namespace qattn::cuda::staging
