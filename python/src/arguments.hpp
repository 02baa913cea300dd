// The arguments of forward() and explain(), checked and in the library's terms.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>

#include "array.hpp"
#include "qattn/device.hpp"
#include "qattn/options.hpp"
#include "qattn/tensor.hpp"

namespace qattn::python {

enum class Elements { int8, floating };
/// `array` must be a (batch, seq, heads, head_dim) tensor of these elements. An array whose layout
/// the library cannot take (broadcast, or a last axis with gaps) is replaced by a compact copy.
void require_tensor(Array& array, Elements elements);
/// `array` must lie where `reference` does.
void require_same_place(const Array& array, const Array& reference);
/// An output of exactly this shape, float32, float16 or bfloat16, writable in place.
void require_output(const Array& array, const std::int64_t* shape, int ndim);

Shape shape_of(const Array& array);
Strides strides_of(const Array& array);

/// None: where the data lies, on the framework's current stream. "cpu", "cuda", "cuda:N" or "best".
Device parse_device(nanobind::handle device, const Array& data);
int parse_threads(nanobind::handle threads);
/// An output's element type; its name is of static storage.
struct OutputType {
  DataType dtype;
  const char* name;
};
/// None: float32. A name, or what a framework calls the type.
OutputType parse_out_dtype(nanobind::handle object);
bool parse_bool(const char* name, nanobind::handle object);

/// What every call shares; the options as Python objects.
struct OptionArguments {
  nanobind::handle causal;
  nanobind::handle softmax_scale;
  nanobind::handle window;
  nanobind::handle precision;
  nanobind::handle kernel;
  nanobind::handle threads;
};
Options parse_options(const OptionArguments& arguments);

/// q, k, v and their scales, viewed and checked against each other's place.
class Inputs {
 public:
  Inputs(nanobind::handle q, nanobind::handle k, nanobind::handle v, nanobind::handle q_scale,
         nanobind::handle k_scale, nanobind::handle v_scale);

  const Array& q() const noexcept { return q_; }
  Int8Tensor q_view() const { return view(q_, q_scale_); }
  Int8Tensor k_view() const { return view(k_, k_scale_); }
  Int8Tensor v_view() const { return view(v_, v_scale_); }
  /// (batch, seq_q, heads_q, head_dim of v)
  std::array<std::int64_t, 4> out_shape() const;
  /// (batch, heads_q, seq_q)
  std::array<std::int64_t, 3> lse_shape() const;

 private:
  static Int8Tensor view(const Array& tensor, const Array& scale);

  Array q_, k_, v_, q_scale_, k_scale_, v_scale_;
};

}  // namespace qattn::python
