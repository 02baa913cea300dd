#include "arguments.hpp"

#include <cmath>
#include <string>
#include <string_view>

#include "errors.hpp"
#include "qattn/mask.hpp"

namespace nb = nanobind;

namespace qattn::python {
namespace {

std::string type_text(nb::handle object) { return nb::str(object.type().attr("__name__")).c_str(); }

std::string repr_text(nb::handle object) { return nb::repr(object).c_str(); }

// NumPy is not asked for its type: it need not be imported.
bool is_numpy_bool(nb::handle object) {
  const std::string name = type_text(object);
  if (name != "bool" && name != "bool_") return false;  // since NumPy 2, before
  const nb::str module(object.type().attr("__module__"));
  return std::string_view(module.c_str()) == "numpy";
}

void check_device_type(const Array& array) {
  const std::int32_t type = array.tensor().device.type;
  if (array.on_cuda() || type == dlpack::kCpu || type == dlpack::kCudaHost) return;
  refuse_value(std::string(array.name()) + " lies on a device of DLPack type " +
               std::to_string(type) + " (allowed: CPU, CUDA)");
}

void check_type(const Array& array, bool right, const char* allowed) {
  if (!right) {
    refuse_type(std::string(array.name()) + " has dtype " + array.dtype_text() +
                " (allowed: " + allowed + ")");
  }
}

bool is_floating(const Array& array) {
  return array.has_type(dlpack::kFloat, 32) || array.has_type(dlpack::kFloat, 16) ||
         array.has_type(dlpack::kBfloat, 16);
}

void check_rank(const Array& array, int ndim, const char* allowed) {
  if (array.ndim() != ndim) {
    refuse_value(std::string(array.name()) + " has shape " + array.shape_text() +
                 " (allowed: " + allowed + ")");
  }
}

// Whether the library can take the strides; an array that goes backwards is refused.
bool has_library_layout(const Array& array) {
  if (array.is_empty()) return true;
  bool fits = array.is_regular();
  for (int i = 0; i < array.ndim(); ++i) {
    if (array.shape(i) < 2) continue;
    const std::int64_t stride = array.stride(i);
    if (stride < 0) {
      refuse_value(std::string(array.name()) + " has a negative stride along axis " +
                   std::to_string(i) + " (allowed: positive strides; pass a copy)");
    }
    const bool last = i == array.ndim() - 1;
    if (stride == 0 || (last && stride != 1)) fits = false;
  }
  return fits;
}

void require_scale(Array& scale, const Array& tensor) {
  check_device_type(scale);
  check_type(scale, scale.has_type(dlpack::kFloat, 32), "float32");
  constexpr const char* kAllowed = "(heads,), (batch, heads) or (batch, seq, heads) of ";
  if (scale.ndim() < 1 || scale.ndim() > 3) {
    refuse_value(std::string(scale.name()) + " has shape " + scale.shape_text() +
                 " (allowed: " + kAllowed + tensor.name() + ")");
  }
  // The leading axes of a scale are those of the tensor, its last one is the tensor's heads.
  bool same = scale.shape(scale.ndim() - 1) == tensor.shape(2);
  for (int i = 0; i < scale.ndim() - 1; ++i) same = same && scale.shape(i) == tensor.shape(i);
  if (!same) {
    refuse_value(std::string(scale.name()) + " has shape " + scale.shape_text() + " (allowed: " +
                 kAllowed + tensor.name() + ", whose shape is " + tensor.shape_text() + ")");
  }
  if (!has_library_layout(scale) || !scale.is_compact()) scale.make_compact();
}

std::int64_t window_bound(nb::handle bound) {
  if (bound.is_none()) return Mask::kUnlimited;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(bound.ptr(), &overflow);
  if (value == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse_type("window holds " + repr_text(bound) + " (allowed: integers and None)");
  }
  return overflow != 0 || value < 0 ? Mask::kUnlimited : value;
}

Mask parse_mask(nb::handle causal, nb::handle window) {
  const bool is_causal = parse_bool("causal", causal);
  if (window.is_none()) return is_causal ? Mask::causal() : Mask::full();
  if (!PyTuple_Check(window.ptr()) || PyTuple_Size(window.ptr()) != 2) {
    refuse_type("window is " + repr_text(window) + " (allowed: None or a tuple (left, right))");
  }
  const std::int64_t left = window_bound(PyTuple_GetItem(window.ptr(), 0));
  const std::int64_t right = window_bound(PyTuple_GetItem(window.ptr(), 1));
  if (is_causal && right != 0 && right != Mask::kUnlimited) {
    refuse_value("window is " + repr_text(window) +
                 ", whose right bound causal=True does not read (allowed: 0, None or a negative"
                 " right bound; or causal=False)");
  }
  return Mask::window(left, is_causal ? 0 : right);
}

// Text of a str argument; `name` for the error.
std::string_view text_of(const char* name, nb::handle object) {
  if (!PyUnicode_Check(object.ptr())) {
    refuse_type(std::string(name) + " is of type " + type_text(object) + " (allowed: str)");
  }
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (data == nullptr) nb::raise_python_error();
  return {data, static_cast<std::size_t>(size)};
}

Precision parse_precision(nb::handle object) {
  const std::string_view text = text_of("precision", object);
  if (text == "high") return Precision::high;
  if (text == "fast") return Precision::fast;
  refuse_value("precision is " + repr_text(object) + " (allowed: 'high', 'fast')");
}

float parse_softmax_scale(nb::handle object) {
  constexpr const char* kAllowed =
      "float32 cannot hold (allowed: 0, or a magnitude of 1e-45 to 3.4e38)";
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1.0 && PyErr_Occurred() != nullptr) {
    const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    PyErr_Clear();
    // Its digits may be more than Python turns into text.
    if (too_large) refuse_value(std::string("softmax_scale is an integer that ") + kAllowed);
    refuse_type("softmax_scale is of type " + type_text(object) + " (allowed: None or a number)");
  }
  const auto narrow = static_cast<float>(value);
  const bool became_infinite = std::isfinite(value) && std::isinf(narrow);
  const bool became_zero = value != 0.0 && narrow == 0.0F;
  if (became_infinite || became_zero) {
    refuse_value("softmax_scale is " + repr_text(object) + ", which " + kAllowed);
  }
  return narrow;
}

}  // namespace

void require_tensor(Array& array, Elements elements) {
  check_device_type(array);
  if (elements == Elements::int8) {
    check_type(array, array.has_type(dlpack::kInt, 8), "int8");
  } else {
    check_type(array, is_floating(array), "float32, float16, bfloat16");
  }
  check_rank(array, 4, "(batch, seq, heads, head_dim)");
  if (!has_library_layout(array)) array.make_compact();
}

void require_same_place(const Array& array, const Array& reference) {
  if (array.on_cuda() == reference.on_cuda() &&
      (!array.on_cuda() || array.ordinal() == reference.ordinal())) {
    return;
  }
  refuse_value(std::string(array.name()) + " lies on " + array.place() + ", " + reference.name() +
               " on " + reference.place() + " (allowed: all on one device)");
}

void require_output(const Array& array, const std::int64_t* shape, int ndim) {
  check_device_type(array);
  check_type(array, is_floating(array), "float32, float16, bfloat16");
  bool same = array.ndim() == ndim;
  std::string wanted;
  for (int i = 0; i < ndim; ++i) {
    same = same && array.shape(i) == shape[i];
    wanted += (i == 0 ? "(" : ", ") + std::to_string(shape[i]);
  }
  if (!same) {
    refuse_value(std::string(array.name()) + " has shape " + array.shape_text() +
                 " (allowed: " + wanted + "))");
  }
  if (!array.writable() || array.framework() == Framework::jax) {
    refuse_value(std::string(array.name()) + " is read-only (allowed: a writable array)");
  }
  if (!has_library_layout(array)) {
    refuse_value(std::string(array.name()) +
                 " has a layout that cannot be written in place (allowed: native byte order, "
                 "positive strides, the last axis contiguous)");
  }
}

Shape shape_of(const Array& array) {
  return {array.shape(0), array.shape(1), array.shape(2), array.shape(3)};
}

Strides strides_of(const Array& array) {
  return {array.stride(0), array.stride(1), array.stride(2)};
}

Device parse_device(nb::handle device, const Array& data) {
  const bool on_cuda = data.on_cuda();
  if (device.is_none()) {
    return on_cuda ? Device::cuda(data.ordinal(), data.current_stream()) : Device::cpu();
  }
  const nb::str owner(device);  // a str itself, or for example a torch.device
  const std::string_view text(owner.c_str());
  if (text == "cpu") return Device::cpu();
  if (text == "best" && !on_cuda) return Device::best();
  int ordinal = on_cuda ? data.ordinal() : 0;
  bool known = text == "cuda" || text == "best";
  if (text.substr(0, 5) == "cuda:" && text.size() > 5 && text.size() < 10 &&
      text.find_first_not_of("0123456789", 5) == std::string_view::npos) {
    ordinal = std::stoi(std::string(text.substr(5)));
    known = true;
  }
  if (!known) {
    refuse_value("device is " + repr_text(device) +
                 " (allowed: None, 'cpu', 'cuda', 'cuda:N', 'best')");
  }
  const bool own = on_cuda && ordinal == data.ordinal();
  return Device::cuda(ordinal, own ? data.current_stream() : nullptr);
}

bool parse_bool(const char* name, nb::handle object) {
  if (PyBool_Check(object.ptr())) return object.is(Py_True);
  if (is_numpy_bool(object)) return PyObject_IsTrue(object.ptr()) == 1;
  refuse_type(std::string(name) + " is " + repr_text(object) + " (allowed: True, False)");
}

int parse_threads(nb::handle threads) {
  const long value = PyLong_AsLong(threads.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse_type("threads is " + repr_text(threads) + " (allowed: an integer)");
  }
  if (value < 0 || value > 1'000'000) {
    refuse_value("threads is " + repr_text(threads) +
                 " (allowed: 0 for the default, or a positive number)");
  }
  return static_cast<int>(value);
}

OutputType parse_out_dtype(nb::handle object) {
  constexpr OutputType kTypes[] = {{DataType::float32, "float32"},
                                   {DataType::float16, "float16"},
                                   {DataType::bfloat16, "bfloat16"}};
  if (object.is_none()) return kTypes[0];
  // "float16", numpy.dtype("float16"), torch.float16; numpy.float16 is a type.
  const nb::str owner(PyType_Check(object.ptr()) ? nb::object(object.attr("__name__"))
                                                 : nb::borrow(object));
  std::string_view text(owner.c_str());
  if (text.substr(0, 6) == "torch.") text.remove_prefix(6);
  for (const OutputType& type : kTypes) {
    if (text == type.name) return type;
  }
  refuse_value("out_dtype is " + repr_text(object) +
               " (allowed: None, 'float32', 'float16', 'bfloat16')");
}

Options parse_options(const OptionArguments& arguments) {
  Options options;
  options.mask = parse_mask(arguments.causal, arguments.window);
  options.precision = parse_precision(arguments.precision);
  if (!arguments.softmax_scale.is_none()) {
    options.softmax_scale = parse_softmax_scale(arguments.softmax_scale);
  }
  if (!arguments.kernel.is_none()) options.kernel = text_of("kernel", arguments.kernel);
  options.threads = parse_threads(arguments.threads);
  return options;
}

Inputs::Inputs(nb::handle q, nb::handle k, nb::handle v, nb::handle q_scale, nb::handle k_scale,
               nb::handle v_scale)
    : q_("q", q),
      k_("k", k),
      v_("v", v),
      q_scale_("q_scale", q_scale),
      k_scale_("k_scale", k_scale),
      v_scale_("v_scale", v_scale) {
  for (Array* tensor : {&q_, &k_, &v_}) require_tensor(*tensor, Elements::int8);
  require_scale(q_scale_, q_);
  require_scale(k_scale_, k_);
  require_scale(v_scale_, v_);
  for (const Array* array : {&k_, &v_, &q_scale_, &k_scale_, &v_scale_}) {
    require_same_place(*array, q_);
  }
}

std::array<std::int64_t, 4> Inputs::out_shape() const {
  return {q_.shape(0), q_.shape(1), q_.shape(2), v_.shape(3)};
}

std::array<std::int64_t, 3> Inputs::lse_shape() const {
  return {q_.shape(0), q_.shape(2), q_.shape(1)};
}

Int8Tensor Inputs::view(const Array& tensor, const Array& scale) {
  const auto* data = static_cast<const float*>(scale.data());
  const Scale scales = scale.ndim() == 1   ? per_head(data)
                       : scale.ndim() == 2 ? per_batch_head(data)
                                           : per_token(data);
  return {static_cast<const std::int8_t*>(tensor.data()), shape_of(tensor), strides_of(tensor),
          scales};
}

}  // namespace qattn::python
