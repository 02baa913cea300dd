#include "command/tensors.hpp"

#include <algorithm>
#include <cstdint>

#include "command/input_error.hpp"
#include "command/npy.hpp"
#include "command/quantize.hpp"

namespace qattn::command {
namespace {

NpyArray read_tensor(const std::string& path) {
  NpyArray array = read_npy(path);
  if (array.shape.size() != 3 && array.shape.size() != 4) {
    throw InputError(path + ": has shape " + shape_text(array.shape) +
                     " (allowed: (batch, seq, heads, head_dim) or (seq, heads, head_dim))");
  }
  if (std::count(array.shape.begin(), array.shape.end(), 0) > 0) {
    throw InputError(path + ": has shape " + shape_text(array.shape) +
                     ", which holds no elements (allowed: sizes of 1 or more)");
  }
  return array;
}

// (batch, seq, heads, head_dim) of a tensor of either rank.
Shape shape_of(const NpyArray& array) {
  const std::size_t at = array.shape.size() - 3;
  return {at == 0 ? 1 : array.shape[0], array.shape[at], array.shape[at + 1], array.shape[at + 2]};
}

[[noreturn]] void mismatch(const NpyArray& a, const NpyArray& b, const std::string& what) {
  throw InputError(b.path + ": has shape " + shape_text(b.shape) + " but " + a.path + " has " +
                   shape_text(a.shape) + ": " + what);
}

verify::Dimensions dimensions_of(const NpyArray& q, const NpyArray& k, const NpyArray& v) {
  const Shape shape_q = shape_of(q);
  const Shape shape_k = shape_of(k);
  if (q.shape.size() != k.shape.size()) mismatch(q, k, "the ranks must be equal");
  if (k.shape != v.shape) mismatch(k, v, "k and v must have the same shape");
  if (shape_q.batch != shape_k.batch) mismatch(q, k, "the batch sizes must be equal");
  if (shape_q.head_dim != shape_k.head_dim) mismatch(q, k, "the head dimensions must be equal");
  if (shape_q.heads % shape_k.heads != 0) {
    mismatch(q, k, "the heads of q must be a multiple of those of k and v");
  }
  return {shape_q.batch, shape_q.seq, shape_k.seq, shape_q.heads, shape_k.heads, shape_q.head_dim};
}

std::vector<float> read_scales(const std::string& path, const std::string& option,
                               const NpyArray& tensor) {
  if (path.empty()) {
    throw InputError(tensor.path + ": is int8, so " + option +
                     " must name its scales (a .npy file of float32, one per head)");
  }
  const NpyArray scales = read_npy(path, {NpyType::float32});
  const std::int64_t heads = shape_of(tensor).heads;
  if (scales.shape != std::vector<std::int64_t>{heads}) {
    throw InputError(path + ": has shape " + shape_text(scales.shape) + " (allowed: " +
                     shape_text({heads}) + ", one per head of " + tensor.path + ")");
  }
  return scales.float_values();
}

void refuse_scales(const std::string& path, const std::string& option, const NpyArray& tensor) {
  if (path.empty()) return;
  throw InputError(option + ": " + tensor.path + " is " + name_of(tensor.type) +
                   ", its scales come from quantising it (allowed: scales of int8 tensors)");
}

void check_types(const NpyArray& q, const NpyArray& other) {
  if ((q.type == NpyType::int8) == (other.type == NpyType::int8)) return;
  throw InputError(other.path + ": is " + name_of(other.type) + " but " + q.path + " is " +
                   name_of(q.type) + " (allowed: all int8 with scales, or all float)");
}

Quantized quantize_tensor(const NpyArray& array, const std::vector<float>& values) {
  const Shape shape = shape_of(array);
  return quantize(values, shape.heads, shape.head_dim, array.path);
}

}  // namespace

LoadedProblem load_tensors(const TensorFiles& files, const Mask& mask,
                           std::optional<float> softmax_scale) {
  const NpyArray q = read_tensor(files.q);
  const NpyArray k = read_tensor(files.k);
  const NpyArray v = read_tensor(files.v);
  check_types(q, k);
  check_types(q, v);
  const verify::Dimensions dimensions = dimensions_of(q, k, v);

  LoadedProblem loaded;
  loaded.rank = static_cast<int>(q.shape.size());
  loaded.problem.dimensions = dimensions;
  loaded.problem.mask = mask;
  loaded.problem.softmax_scale = softmax_scale;
  if (q.type == NpyType::int8) {
    loaded.problem.q = q.int8_values();
    loaded.problem.k = k.int8_values();
    loaded.problem.v = v.int8_values();
    loaded.problem.q_scale = read_scales(files.q_scale, "--q-scale", q);
    loaded.problem.k_scale = read_scales(files.k_scale, "--k-scale", k);
    loaded.problem.v_scale = read_scales(files.v_scale, "--v-scale", v);
    return loaded;
  }
  refuse_scales(files.q_scale, "--q-scale", q);
  refuse_scales(files.k_scale, "--k-scale", k);
  refuse_scales(files.v_scale, "--v-scale", v);
  loaded.original = verify::FloatProblem{
      dimensions, mask, softmax_scale, q.float_values(), k.float_values(), v.float_values()};
  Quantized quantized_q = quantize_tensor(q, loaded.original->q);
  Quantized quantized_k = quantize_tensor(k, loaded.original->k);
  Quantized quantized_v = quantize_tensor(v, loaded.original->v);
  loaded.problem.q = std::move(quantized_q.values);
  loaded.problem.k = std::move(quantized_k.values);
  loaded.problem.v = std::move(quantized_v.values);
  loaded.problem.q_scale = std::move(quantized_q.scales);
  loaded.problem.k_scale = std::move(quantized_k.scales);
  loaded.problem.v_scale = std::move(quantized_v.scales);
  return loaded;
}

}  // namespace qattn::command
