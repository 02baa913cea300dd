#include "array.hpp"

#include <string_view>
#include <utility>

#include "errors.hpp"

namespace nb = nanobind;

namespace qattn::python {
namespace {

// The element type of a buffer's format, which is a struct code after an optional byte order.
dlpack::ElementType buffer_type(const Py_buffer& buffer, bool* swapped) {
  std::string_view format = buffer.format == nullptr ? "B" : buffer.format;
  if (!format.empty() && std::string_view("@=<>!").find(format[0]) != std::string_view::npos) {
    *swapped = (format[0] == '>' || format[0] == '!') && buffer.itemsize > 1;
    format.remove_prefix(1);
  }
  const auto bits = static_cast<std::uint8_t>(8 * buffer.itemsize);
  if (format.size() != 1 || buffer.itemsize > 16) return {dlpack::kInt, 0, 1};
  switch (format[0]) {
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return {dlpack::kInt, bits, 1};
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return {dlpack::kUint, bits, 1};
    case 'e':
    case 'f':
    case 'd':
    case 'g':
      return {dlpack::kFloat, bits, 1};
    case '?':
      return {dlpack::kBool, bits, 1};
    default:
      return {dlpack::kInt, 0, 1};
  }
}

// Text of the pending Python exception, which is cleared.
std::string take_python_error() {
  nb::python_error error;
  const nb::str text(error.value());
  return text.c_str();
}

}  // namespace

Array::Array(const char* name, nb::handle object)
    : name_(name), object_(nb::borrow(object)), type_(array_type(name, object)) {
  view();
}

Array::~Array() { release(); }

void Array::release() noexcept {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
  capsule_.reset();
}

void Array::view() {
  if (type_.exchange != nullptr) {
    view_exchange();
  } else if (type_.buffer) {
    view_buffer();
  } else {
    view_capsule();
  }
}

void Array::view_exchange() {
  dlpack::Tensor tensor{};
  if (type_.exchange->view(object_.ptr(), &tensor) != 0) {
    refuse_value(std::string(name_) + " cannot be read: " + take_python_error());
  }
  adopt(tensor);
}

void Array::view_buffer() {
  bool is_bfloat16 = false;
  if (PyObject_GetBuffer(object_.ptr(), &buffer_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    buffer_.obj = nullptr;
    const std::string reason = take_python_error();
    is_bfloat16 = type_.framework == Framework::numpy && dtype_text() == "bfloat16";
    if (!is_bfloat16) {
      refuse_type(std::string(name_) + " cannot be read as a buffer: " + reason);
    }
    // NumPy exports no buffer of the type that ml_dtypes adds to it, but one of its bits.
    const nb::object bits = object_.attr("view")("uint16");
    if (PyObject_GetBuffer(bits.ptr(), &buffer_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
      buffer_.obj = nullptr;
      nb::raise_python_error();
    }
  }
  writable_ = buffer_.readonly == 0;
  bool swapped = false;
  tensor_ = {};
  tensor_.data = buffer_.buf;
  tensor_.device = {dlpack::kCpu, 0};
  tensor_.ndim = buffer_.ndim;
  tensor_.dtype = buffer_type(buffer_, &swapped);
  if (is_bfloat16) tensor_.dtype.code = dlpack::kBfloat;
  regular_ = !swapped && buffer_.itemsize > 0 &&
             reinterpret_cast<std::uintptr_t>(buffer_.buf) %
                     static_cast<std::uintptr_t>(buffer_.itemsize) ==
                 0;
  for (int i = 0; i < buffer_.ndim && i < kMaxDims; ++i) {
    const auto d = static_cast<std::size_t>(i);
    shape_[d] = buffer_.shape[i];
    strides_[d] = buffer_.itemsize == 0 ? 0 : buffer_.strides[i] / buffer_.itemsize;
    if (shape_[d] > 1 && strides_[d] * buffer_.itemsize != buffer_.strides[i]) regular_ = false;
  }
}

void Array::view_capsule() {
  try {
    const nb::tuple device = nb::cast<nb::tuple>(object_.attr("__dlpack_device__")());
    const auto type = nb::cast<std::int32_t>(device[0]);
    const auto id = nb::cast<std::int32_t>(device[1]);
    nb::dict arguments;
    arguments["max_version"] = nb::make_tuple(dlpack::kMajorVersion, 1);
    if (type == dlpack::kCuda || type == dlpack::kCudaManaged) {
      // The producer makes this stream wait for the array; DLPack calls the default stream 1.
      void* stream = python::current_stream(type_, id);
      arguments["stream"] = stream == nullptr ? 1 : reinterpret_cast<std::uintptr_t>(stream);
    }
    const nb::object method = object_.attr("__dlpack__");
    try {
      capsule_ = method(**arguments);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      PyDict_DelItemString(arguments.ptr(), "max_version");  // older than DLPack 1.0
      capsule_ = method(**arguments);
    }
  } catch (nb::python_error& error) {
    const nb::str text(error.value());
    refuse_value(std::string(name_) + " cannot be read through DLPack: " + text.c_str());
  }
  if (PyCapsule_IsValid(capsule_.ptr(), "dltensor_versioned")) {
    const auto* managed = static_cast<const dlpack::ManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule_.ptr(), "dltensor_versioned"));
    if (managed->version.major != dlpack::kMajorVersion) {
      refuse_value(std::string(name_) + " comes with an unknown version of DLPack");
    }
    writable_ = (managed->flags & dlpack::kReadOnly) == 0;
    adopt(managed->tensor);
  } else if (PyCapsule_IsValid(capsule_.ptr(), "dltensor")) {
    adopt(
        static_cast<const dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule_.ptr(), "dltensor"))
            ->tensor);
  } else {
    refuse_value(std::string(name_) + " gave no DLPack tensor");
  }
}

void Array::adopt(const dlpack::Tensor& tensor) {
  tensor_ = tensor;
  regular_ = reinterpret_cast<std::uintptr_t>(data()) % ((tensor.dtype.bits + 7U) / 8U) == 0;
  std::int64_t compact = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (i < kMaxDims) {
      const auto d = static_cast<std::size_t>(i);
      shape_[d] = tensor.shape[i];
      strides_[d] = tensor.strides == nullptr ? compact : tensor.strides[i];
    }
    compact *= tensor.shape[i];
  }
}

void* Array::data() const noexcept {
  return static_cast<char*>(tensor_.data) + tensor_.byte_offset;
}

bool Array::is_empty() const noexcept {
  for (int i = 0; i < ndim() && i < kMaxDims; ++i) {
    if (shape(i) == 0) return true;
  }
  return false;
}

bool Array::is_compact() const noexcept {
  std::int64_t compact = 1;
  for (int i = ndim() - 1; i >= 0; --i) {
    if (shape(i) > 1 && stride(i) != compact) return false;
    compact *= shape(i);
  }
  return true;
}

bool Array::on_cuda() const noexcept {
  return tensor_.device.type == dlpack::kCuda || tensor_.device.type == dlpack::kCudaManaged;
}

std::string Array::place() const { return on_cuda() ? "cuda:" + std::to_string(ordinal()) : "cpu"; }

std::string Array::dtype_text() const {
  return nb::str(nb::getattr(object_, "dtype", object_.type())).c_str();
}

std::string Array::shape_text() const {
  std::string text = "(";
  for (int i = 0; i < ndim(); ++i) {
    if (i == kMaxDims) return text + ", ...)";
    text += (i == 0 ? "" : ", ") + std::to_string(shape(i));
  }
  return text + (ndim() == 1 ? ",)" : ")");
}

void* Array::current_stream() const { return python::current_stream(type_, ordinal()); }

void Array::make_compact() {
  const dlpack::ElementType dtype = tensor_.dtype;
  const int ndim = tensor_.ndim;
  const auto shape = shape_;
  try {
    nb::object copy = compact_copy(object_);
    release();
    object_ = std::move(copy);
  } catch (nb::python_error& error) {
    const nb::str text(error.value());
    refuse_value(std::string(name_) +
                 " has a layout that must be copied first, which failed: " + text.c_str());
  }
  type_ = array_type(name_, object_);
  view();
  const bool faithful = tensor_.ndim == ndim && shape_ == shape && is_compact() && regular_ &&
                        has_type(static_cast<dlpack::TypeCode>(dtype.code), dtype.bits);
  if (!faithful) refuse_value(std::string(name_) + " was copied to another layout than asked for");
}

}  // namespace qattn::python
