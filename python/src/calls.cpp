#include "calls.hpp"

#include <optional>

#include "arguments.hpp"
#include "array.hpp"
#include "errors.hpp"
#include "qattn/forward.hpp"
#include "qattn/introspect.hpp"
#include "qattn/quantize.hpp"
#include "results.hpp"

namespace nb = nanobind;

namespace qattn::python {
namespace {

DataType floating_type(const Array& array) {
  if (array.has_type(dlpack::kFloat, 32)) return DataType::float32;
  return array.has_type(dlpack::kFloat, 16) ? DataType::float16 : DataType::bfloat16;
}

nb::object forward_call(nb::handle q, nb::handle k, nb::handle v, nb::handle q_scale,
                        nb::handle k_scale, nb::handle v_scale, nb::handle causal,
                        nb::handle softmax_scale, nb::handle window, nb::handle precision,
                        nb::handle return_lse, nb::handle out, nb::handle out_dtype,
                        nb::handle device, nb::handle kernel, nb::handle threads) {
  const Inputs inputs(q, k, v, q_scale, k_scale, v_scale);
  Options options = parse_options({causal, softmax_scale, window, precision, kernel, threads});
  const Device target = parse_device(device, inputs.q());
  const auto out_shape = inputs.out_shape();
  OutputType type = parse_out_dtype(out_dtype);
  Result result = out.is_none() ? Result(inputs.q(), type.name, out_shape.data(), 4)
                                : Result(out, inputs.q(), out_shape.data(), 4);
  if (!out.is_none()) {
    const DataType given = floating_type(result.array());
    if (given != type.dtype && !out_dtype.is_none()) {
      refuse_value("out has dtype " + result.array().dtype_text() + " (allowed: out_dtype, " +
                   type.name + ")");
    }
    type.dtype = given;
  }
  std::optional<Result> lse;
  if (parse_bool("return_lse", return_lse)) {
    lse.emplace(inputs.q(), "float32", inputs.lse_shape().data(), 3);
    options.lse = static_cast<float*>(lse->data());
  }
  const OutputTensor view{result.data(),
                          type.dtype,
                          {out_shape[0], out_shape[1], out_shape[2], out_shape[3]},
                          result.strides()};
  {
    const nb::gil_scoped_release release;
    forward(target, inputs.q_view(), inputs.k_view(), inputs.v_view(), view, options);
  }
  nb::object value = result.finish(target);
  return lse ? nb::make_tuple(value, lse->finish(target)) : value;
}

nb::tuple explain_call(nb::handle q, nb::handle k, nb::handle v, nb::handle q_scale,
                       nb::handle k_scale, nb::handle v_scale, nb::handle causal,
                       nb::handle softmax_scale, nb::handle window, nb::handle precision,
                       nb::handle out_dtype, nb::handle device, nb::handle kernel,
                       nb::handle threads) {
  const Inputs inputs(q, k, v, q_scale, k_scale, v_scale);
  const Options options =
      parse_options({causal, softmax_scale, window, precision, kernel, threads});
  const Device target = parse_device(device, inputs.q());
  const auto s = inputs.out_shape();
  const Explanation explanation = explain(
      target, inputs.q_view(), inputs.k_view(), inputs.v_view(),
      OutputTensor{nullptr, parse_out_dtype(out_dtype).dtype, {s[0], s[1], s[2], s[3]}}, options);
  nb::list passed_over;
  for (const KernelStatus& status : explanation.passed_over) {
    passed_over.append(
        nb::make_tuple(status.name.c_str(), status.usable, in_arguments(status.reason).c_str()));
  }
  return nb::make_tuple(explanation.kernel.c_str(), passed_over,
                        in_arguments(explanation.error).c_str());
}

nb::tuple quantize_call(nb::handle x, nb::handle device, nb::handle threads) {
  Array input("x", x);
  require_tensor(input, Elements::floating);
  const Device target = parse_device(device, input);
  QuantizeOptions options;
  options.threads = parse_threads(threads);
  const Shape shape = shape_of(input);
  const std::int64_t extents[] = {shape.batch, shape.seq, shape.heads, shape.head_dim};
  Result values(input, "int8", extents, 4);
  Result scale(input, "float32", &shape.heads, 1);
  const QuantizedTensor out{static_cast<std::int8_t*>(values.data()), shape,
                            static_cast<float*>(scale.data())};
  {
    const nb::gil_scoped_release release;
    quantize(target, FloatTensor{input.data(), floating_type(input), shape, strides_of(input)}, out,
             options);
  }
  return nb::make_tuple(values.finish(target), scale.finish(target));
}

// An argument of any type: the binding checks it itself, to name it in the error.
auto any(const char* name) { return nb::arg(name).none(); }

}  // namespace

void bind_calls(nb::module_& module) {
  module.def("forward", &forward_call, any("q"), any("k"), any("v"), any("q_scale"), any("k_scale"),
             any("v_scale"), any("causal"), any("softmax_scale"), any("window"), any("precision"),
             any("return_lse"), any("out"), any("out_dtype"), any("device"), any("kernel"),
             any("threads"));
  module.def("explain", &explain_call, any("q"), any("k"), any("v"), any("q_scale"), any("k_scale"),
             any("v_scale"), any("causal"), any("softmax_scale"), any("window"), any("precision"),
             any("out_dtype"), any("device"), any("kernel"), any("threads"));
  module.def("quantize", &quantize_call, any("x"), any("device"), any("threads"));
}

}  // namespace qattn::python
