#include "core/problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "core/float_environment.hpp"
#include "core/unused.hpp"
#include "core/view.hpp"

namespace qattn::core {
namespace {

constexpr std::int64_t kMaxHeadDim = 256;

// Entries that a scale array holds for a tensor, for the overlap test.
std::int64_t scale_entries(const Scale& scale, const Shape& shape) {
  switch (scale.granularity) {
    case Scale::Granularity::per_tensor:
      return 1;
    case Scale::Granularity::per_head:
      return shape.heads;
    case Scale::Granularity::per_batch_head:
      return shape.batch * shape.heads;
    default:
      return shape.heads;  // no kernel implements the finer ones yet: refused before it matters
  }
}

ExtraSet input_extras(const Int8Tensor& tensor) {
  ExtraSet extras;
  switch (tensor.scale.granularity) {
    case Scale::Granularity::per_head:
      break;
    case Scale::Granularity::per_tensor:
      extras = extras.with(Extra::scale_per_tensor);
      break;
    case Scale::Granularity::per_batch_head:
      extras = extras.with(Extra::scale_per_batch_head);
      break;
    case Scale::Granularity::per_token:
      extras = extras.with(Extra::scale_per_token);
      break;
    case Scale::Granularity::per_block:
      extras = extras.with(Extra::scale_per_block);
      break;
    case Scale::Granularity::per_channel:
      extras = extras.with(Extra::scale_per_channel);
      break;
  }
  if (tensor.dtype == DataType::uint8) extras = extras.with(Extra::uint8_input);
  if (tensor.layout.kind == SequenceLayout::Kind::packed) {
    extras = extras.with(Extra::packed_layout);
  }
  if (tensor.layout.kind == SequenceLayout::Kind::paged) extras = extras.with(Extra::paged_layout);
  return extras;
}

ExtraSet option_extras(const Options& options, const OutputTensor& out) {
  ExtraSet extras;
  switch (options.mask.kind) {
    case Mask::Kind::causal:
    case Mask::Kind::full:
      break;
    case Mask::Kind::window:
      extras = extras.with(Extra::window_mask);
      break;
    case Mask::Kind::boolean:
      extras = extras.with(Extra::boolean_mask);
      break;
    case Mask::Kind::additive:
      extras = extras.with(Extra::additive_mask);
      break;
  }
  if (options.soft_cap != 0.0F) extras = extras.with(Extra::soft_cap);
  if (options.alibi_slopes != nullptr) extras = extras.with(Extra::alibi);
  if (options.sinks != nullptr) extras = extras.with(Extra::sinks);
  if (out.dtype == DataType::float16) extras = extras.with(Extra::float16_output);
  if (out.dtype == DataType::bfloat16) extras = extras.with(Extra::bfloat16_output);
  if (out.dtype == DataType::int8) extras = extras.with(Extra::int8_output);
  return extras;
}

// A value of an enumeration that is none of its names, as a cast or another language can make it.
// `argument` and `field` together name it.
template <typename Enum>
void refuse_unknown(const char* argument, const char* field, Enum value, Enum last) {
  if (static_cast<int>(value) > static_cast<int>(last)) {
    refuse(std::string(argument) + field + " is " + std::to_string(static_cast<int>(value)) +
           " (allowed: the values of its enumeration)");
  }
}

void check_input(const char* name, const Int8Tensor& tensor) {
  if (tensor.dtype != DataType::int8 && tensor.dtype != DataType::uint8) {
    refuse(std::string(name) + ".dtype is " + std::to_string(static_cast<int>(tensor.dtype)) +
           " (allowed: int8, uint8)");
  }
  refuse_unknown(name, ".scale.granularity", tensor.scale.granularity,
                 Scale::Granularity::per_channel);
  refuse_unknown(name, ".layout.kind", tensor.layout.kind, SequenceLayout::Kind::paged);
  if (tensor.dtype == DataType::int8 && tensor.zero_point != nullptr) {
    refuse(std::string(name) +
           ".zero_point is set with dtype int8 (allowed: null; zero points are for uint8)");
  }
}

void check_output_type(const OutputTensor& out) {
  refuse_unknown("out", ".dtype", out.dtype, DataType::bfloat16);
  if (out.dtype == DataType::uint8) {
    refuse("out.dtype is uint8 (allowed: float32, float16, bfloat16, int8)");
  }
}

void check_shapes(const Shape& q, const Shape& k, const Shape& v, const Shape& out) {
  check_extents("q", q);
  check_extents("k", k);
  check_extents("v", v);
  check_extents("out", out);
  if (q.head_dim < 1 || q.head_dim > kMaxHeadDim) {
    refuse("q.shape.head_dim is " + std::to_string(q.head_dim) + " (allowed: 1 to 256)");
  }
  if (k.head_dim != q.head_dim) {
    refuse("k.shape.head_dim is " + std::to_string(k.head_dim) + " (allowed: that of q, " +
           std::to_string(q.head_dim) + ")");
  }
  if (v.head_dim < 1 || v.head_dim > kMaxHeadDim) {
    refuse("v.shape.head_dim is " + std::to_string(v.head_dim) + " (allowed: 1 to 256)");
  }
  if (k.batch != q.batch) {
    refuse("k.shape.batch is " + std::to_string(k.batch) + " (allowed: that of q, " +
           std::to_string(q.batch) + ")");
  }
  if (v.batch != k.batch || v.seq != k.seq || v.heads != k.heads) {
    refuse("v.shape is " + to_text(v) + " (allowed: batch, seq and heads of k, " + to_text(k) +
           ")");
  }
  if (out.batch != q.batch || out.seq != q.seq || out.heads != q.heads ||
      out.head_dim != v.head_dim) {
    refuse("out.shape is " + to_text(out) + " (allowed: batch, seq and heads of q " + to_text(q) +
           " with the head_dim of v, " + std::to_string(v.head_dim) + ")");
  }
  if (q.heads > 0 && (k.heads == 0 || q.heads % k.heads != 0)) {
    refuse("q.shape.heads is " + std::to_string(q.heads) + " with " + std::to_string(k.heads) +
           " heads of k and v (allowed: a positive multiple of them)");
  }
}

void check_options(const Options& options) {
  refuse_unknown("options", ".mask.kind", options.mask.kind, Mask::Kind::additive);
  if (options.softmax_scale && !std::isfinite(*options.softmax_scale)) {
    refuse("options.softmax_scale is " + std::to_string(*options.softmax_scale) +
           " (allowed: finite values)");
  }
  if (options.threads < 0) {
    refuse("options.threads is " + std::to_string(options.threads) +
           " (allowed: 0 for the default, or a positive number)");
  }
  if (!std::isfinite(options.soft_cap) || options.soft_cap < 0) {
    refuse("options.soft_cap is " + std::to_string(options.soft_cap) +
           " (allowed: 0 for none, or a positive finite value)");
  }
  if (options.precision != Precision::high && options.precision != Precision::fast) {
    refuse("options.precision is " + std::to_string(static_cast<int>(options.precision)) +
           " (allowed: Precision::high, Precision::fast)");
  }
  if (options.workspace_bytes > 0 && options.workspace == nullptr) {
    refuse("options.workspace is null with options.workspace_bytes " +
           std::to_string(options.workspace_bytes) + " (allowed: null only with 0 bytes)");
  }
  if (reinterpret_cast<std::uintptr_t>(options.workspace) % 256 != 0) {
    refuse("options.workspace is not 256-byte aligned (allowed: multiples of 256)");
  }
}

void require_pointer(const char* name, const void* pointer) {
  if (pointer == nullptr) {
    refuse(std::string(name) + " is null (allowed: null only where the tensor is empty)");
  }
}

// Rounded to nearest whatever the caller's rounding mode is.
double default_softmax_scale(std::int64_t head_dim) {
  const FloatEnvironment environment;
  return 1.0 / std::sqrt(static_cast<double>(head_dim));
}

constexpr std::int64_t kFloatBytes = 4;

void require_alignment(const char* name, const void* pointer, std::int64_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(bytes) != 0) {
    refuse(std::string(name) + " is not " + std::to_string(bytes) +
           "-byte aligned (allowed: addresses that its elements may have)");
  }
}

void check_pointers(const Problem& p, const Int8Tensor& q, const Int8Tensor& k, const Int8Tensor& v,
                    const std::array<Range, 9>& ranges) {
  if (p.empty()) return;
  require_pointer("q.data", q.data);
  require_pointer("q.scale.data", q.scale.data);
  require_pointer("out.data", p.out.data);
  if (p.seq_k > 0) {
    require_pointer("k.data", k.data);
    require_pointer("v.data", v.data);
    require_pointer("k.scale.data", k.scale.data);
    require_pointer("v.scale.data", v.scale.data);
  }
  require_alignment("out.data", p.out.data, element_bytes(p.out.dtype));
  require_alignment("options.lse", p.lse, kFloatBytes);
  require_alignment("q.scale.data", q.scale.data, kFloatBytes);
  require_alignment("k.scale.data", k.scale.data, kFloatBytes);
  require_alignment("v.scale.data", v.scale.data, kFloatBytes);
  for (std::size_t written = 0; written < 3; ++written) {  // out, lse, workspace come first
    for (std::size_t other = written + 1; other < ranges.size(); ++other) {
      if (overlap(ranges[written], ranges[other])) {
        refuse(std::string(ranges[written].name) + " overlaps " + ranges[other].name +
               " (allowed: memory of its own, from the first to the last element)");
      }
    }
  }
}

}  // namespace

double Problem::score_factor(float q_scale, float k_scale) const noexcept {
  const double factor = softmax_scale * static_cast<double>(q_scale) * static_cast<double>(k_scale);
  if (!std::isfinite(q_scale) || !std::isfinite(k_scale)) {
    // A product with infinity that happens to be 0 * infinity is NaN; both poison the head alone.
    return std::isnan(factor) ? factor : std::numeric_limits<double>::infinity();
  }
  constexpr double limit = std::numeric_limits<float>::max();
  return std::clamp(factor, -limit, limit);
}

Problem make_problem(const Int8Tensor& q, const Int8Tensor& k, const Int8Tensor& v,
                     const OutputTensor& out, const Options& options, bool follow_pointers) {
  check_input("q", q);
  check_input("k", k);
  check_input("v", v);
  check_output_type(out);
  check_options(options);
  refuse_unused("q", q);
  refuse_unused("k", k);
  refuse_unused("v", v);
  refuse_unused(out);
  refuse_unused(options.mask);
  refuse_unused(options.executor);

  Problem p;
  p.extras =
      input_extras(q).with(input_extras(k)).with(input_extras(v)).with(option_extras(options, out));
  const bool dense = !p.extras.has(Extra::packed_layout) && !p.extras.has(Extra::paged_layout);
  if (!dense) return p;  // refused by every kernel so far; the dense rules below do not apply to it

  check_shapes(q.shape, k.shape, v.shape, out.shape);
  if (v.shape.head_dim != q.shape.head_dim) p.extras = p.extras.with(Extra::head_dim_v);
  p.batch = q.shape.batch;
  p.seq_q = q.shape.seq;
  p.seq_k = k.shape.seq;
  p.heads_q = q.shape.heads;
  p.heads_kv = k.shape.heads;
  p.head_dim = q.shape.head_dim;
  p.mask = options.mask.kind;
  p.precision = options.precision;
  p.softmax_scale = options.softmax_scale ? static_cast<double>(*options.softmax_scale)
                                          : default_softmax_scale(p.head_dim);

  std::int64_t q_span = 0;
  std::int64_t k_span = 0;
  std::int64_t v_span = 0;
  std::int64_t out_span = 0;
  const Strides q_strides = normalise_strides("q", q.shape, q.strides, 1, &q_span);
  const Strides k_strides = normalise_strides("k", k.shape, k.strides, 1, &k_span);
  const Strides v_strides = normalise_strides("v", v.shape, v.strides, 1, &v_span);
  const std::int64_t out_bytes = element_bytes(out.dtype);
  const Strides out_strides =
      normalise_strides("out", out.shape, out.strides, out_bytes, &out_span);
  if (!p.empty()) check_output_strides("out", out.shape, out_strides);

  p.q = {static_cast<const std::int8_t*>(q.data), q_strides, q.scale.data};
  p.k = {static_cast<const std::int8_t*>(k.data), k_strides, k.scale.data};
  p.v = {static_cast<const std::int8_t*>(v.data), v_strides, v.scale.data};
  p.out = {out.data, out_strides, out.dtype};
  p.lse = options.lse;
  if (follow_pointers) {
    const std::int64_t lse_bytes =
        p.lse == nullptr ? 0 : p.batch * p.heads_q * p.seq_q * kFloatBytes;
    check_pointers(p, q, k, v,
                   {{{"out", out.data, out_span * out_bytes},
                     {"options.lse", p.lse, lse_bytes},
                     {"options.workspace", options.workspace,
                      static_cast<std::int64_t>(options.workspace_bytes)},
                     {"q", q.data, q_span},
                     {"k", k.data, k_span},
                     {"v", v.data, v_span},
                     {"q.scale", q.scale.data, scale_entries(q.scale, q.shape) * kFloatBytes},
                     {"k.scale", k.scale.data, scale_entries(k.scale, k.shape) * kFloatBytes},
                     {"v.scale", v.scale.data, scale_entries(v.scale, v.shape) * kFloatBytes}}});
  }
  return p;
}

}  // namespace qattn::core
