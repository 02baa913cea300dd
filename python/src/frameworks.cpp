#include "frameworks.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "errors.hpp"

namespace nb = nanobind;

namespace qattn::python {
namespace {

constexpr std::size_t kCachedTypes = 16;

bool starts_with(std::string_view text, std::string_view prefix) {
  return text == prefix || (text.size() > prefix.size() &&
                            text.substr(0, prefix.size()) == prefix && text[prefix.size()] == '.');
}

// The framework of a type or of the first of its bases that belongs to one.
Framework framework_of(nb::handle type, const char* argument) {
  for (nb::handle base : nb::cast<nb::tuple>(type.attr("__mro__"))) {
    const nb::str text = nb::str(base.attr("__module__"));
    const std::string_view module(text.c_str());
    if (starts_with(module, "numpy.ma")) {
      refuse_type(std::string(argument) +
                  " is a masked array, whose mask would be lost (allowed: plain arrays)");
    }
    if (starts_with(module, "numpy")) return Framework::numpy;
    if (starts_with(module, "torch")) return Framework::torch;
    if (starts_with(module, "cupy")) return Framework::cupy;
    if (starts_with(module, "jax") || starts_with(module, "jaxlib")) return Framework::jax;
  }
  return Framework::other;
}

// A subclass of torch.Tensor that intercepts operators (fake, functional, distributed) need not
// have memory of its own to view.
void require_plain_tensor(const char* argument, nb::handle type) {
  const nb::object plain = nb::module_::import_("torch").attr("Tensor").attr("__torch_dispatch__");
  if (!nb::object(type.attr("__torch_dispatch__")).is(plain)) {
    refuse_type(std::string(argument) + " is of type " + nb::str(type.attr("__name__")).c_str() +
                ", which has no memory to read (allowed: plain tensors; the operators of "
                "qattn.torch take it)");
  }
}

const dlpack::ExchangeApi* exchange_of(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
  const auto* api = static_cast<const dlpack::ExchangeApi*>(
      PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (api != nullptr && api->version.major != dlpack::kMajorVersion) api = api->previous;
  return api != nullptr && api->view != nullptr ? api : nullptr;
}

ArrayType inspect(const char* argument, nb::handle object) {
  const nb::handle type = object.type();
  ArrayType found;
  found.framework = framework_of(type, argument);
  if (found.framework == Framework::torch) require_plain_tensor(argument, type);
  found.exchange = exchange_of(type);
  if (found.exchange != nullptr) return found;
  const bool has_dlpack = nb::hasattr(type, "__dlpack__");
  const bool has_buffer = PyObject_CheckBuffer(object.ptr()) != 0;
  // NumPy exports read-only and byte-swapped arrays as buffers only; others know their devices.
  found.buffer = has_buffer && (!has_dlpack || found.framework == Framework::numpy);
  if (!found.buffer && !has_dlpack) {
    refuse_type(std::string(argument) + " is of type " + nb::str(type.attr("__name__")).c_str() +
                " (allowed: a NumPy, PyTorch, CuPy, JAX or other DLPack array)");
  }
  return found;
}

}  // namespace

ArrayType array_type(const char* argument, nb::handle object) {
  // Guarded by the interpreter lock; never freed, like the types that it keeps alive.
  static auto& known = *new std::vector<std::pair<nb::object, ArrayType>>;
  const nb::handle type = object.type();
  for (const auto& [seen, info] : known) {
    if (seen.is(type)) return info;
  }
  const ArrayType info = inspect(argument, object);
  if (known.size() < kCachedTypes) known.emplace_back(nb::borrow(type), info);
  return info;
}

nb::handle python_function(const char* module, const char* name) {
  return nb::object(nb::module_::import_(module).attr(name)).release();
}

nb::handle helper(const char* name) { return python_function("qattn._frameworks", name); }

void* current_stream(const ArrayType& type, int ordinal) {
  if (type.exchange != nullptr) {
    void* stream = nullptr;
    const int failed = type.exchange->current_stream(dlpack::kCuda, ordinal, &stream);
    if (failed != 0) nb::raise_python_error();
    return stream;
  }
  if (type.framework != Framework::torch && type.framework != Framework::cupy) return nullptr;
  static const nb::handle ask = helper("current_stream");
  const char* module = type.framework == Framework::torch ? "torch" : "cupy";
  const nb::object address = ask(module, ordinal);
  void* stream = PyLong_AsVoidPtr(address.ptr());
  if (stream == nullptr && PyErr_Occurred() != nullptr) nb::raise_python_error();
  return stream;
}

nb::object compact_copy(nb::handle array) {
  static const nb::handle copy = helper("compact_copy");
  return copy(array);
}

}  // namespace qattn::python
