#include "results.hpp"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "arguments.hpp"

namespace nb = nanobind;

namespace qattn::python {
namespace {

std::int64_t count(const std::int64_t* shape, int ndim) {
  std::int64_t entries = 1;
  for (int i = 0; i < ndim; ++i) entries *= shape[i];
  return entries;
}

nb::object shape_tuple(const std::int64_t* shape, int ndim) {
  nb::object tuple = nb::steal(PyTuple_New(ndim));
  for (int i = 0; i < ndim; ++i) {
    PyTuple_SetItem(tuple.ptr(), i, PyLong_FromLongLong(shape[i]));
  }
  return tuple;
}

bool has_shape(const Array& array, const std::int64_t* shape, int ndim) {
  if (array.ndim() != ndim) return false;
  for (int i = 0; i < ndim; ++i) {
    if (array.shape(i) != shape[i]) return false;
  }
  return true;
}

nb::object make_torch(const Array& like, const char* dtype, const std::int64_t* shape, int ndim) {
  // The common case, a float32 result of the shape of q: the quickest way to a tensor.
  static const nb::handle empty_like = python_function("torch", "empty_like");
  static const nb::handle float32 = python_function("torch", "float32");
  if (std::string_view(dtype) == "float32" && has_shape(like, shape, ndim) && like.is_compact()) {
    return empty_like(like.object(), nb::arg("dtype") = float32);
  }
  static const nb::handle empty = helper("empty_torch");
  return empty(like.object(), shape_tuple(shape, ndim), dtype);
}

// An uninitialised compact array of the framework, on the device of `like`; of NumPy for a JAX
// array in host memory, since JAX has no writable ones.
nb::object make_array(const Array& like, const char* dtype, const std::int64_t* shape, int ndim) {
  switch (like.framework()) {
    case Framework::torch:
      return make_torch(like, dtype, shape, ndim);
    case Framework::numpy:
    case Framework::jax: {
      if (std::string_view(dtype) == "bfloat16") {
        static const nb::handle empty_bfloat16 = helper("empty_bfloat16");
        return empty_bfloat16(shape_tuple(shape, ndim));
      }
      static const nb::handle empty = python_function("numpy", "empty");
      return empty(shape_tuple(shape, ndim), dtype);
    }
    case Framework::cupy: {
      static const nb::handle empty = helper("empty_cupy");
      return empty(like.object(), shape_tuple(shape, ndim), dtype);
    }
    case Framework::other:
      break;
  }
  static const nb::handle empty = helper("empty_other");
  return empty(like.object(), shape_tuple(shape, ndim), dtype);
}

nb::dlpack::dtype element_type(std::string_view dtype) {
  if (dtype == "int8") return {static_cast<std::uint8_t>(dlpack::kInt), 8, 1};
  if (dtype == "float32") return {static_cast<std::uint8_t>(dlpack::kFloat), 32, 1};
  const bool is_bfloat16 = dtype == "bfloat16";
  return {static_cast<std::uint8_t>(is_bfloat16 ? dlpack::kBfloat : dlpack::kFloat), 16, 1};
}

// A DLPack capsule of a tensor on a CUDA device that owns its memory.
nb::object dlpack_capsule(Buffer<std::byte> memory, nb::dlpack::dtype dtype,
                          const std::int64_t* shape, int ndim) {
  std::size_t extents[kMaxDims] = {};
  std::copy_n(shape, ndim, extents);
  auto* owned = new Buffer<std::byte>(std::move(memory));
  const nb::capsule owner(owned,
                          [](void* p) noexcept { delete static_cast<Buffer<std::byte>*>(p); });
  return nb::cast(nb::ndarray<nb::device::cuda>(
      owned->data(), static_cast<std::size_t>(ndim), extents, owner, nullptr, dtype,
      nb::device::cuda::value, owned->device().ordinal()));
}

}  // namespace

Result::Result(nb::handle given, const Array& like, const std::int64_t* shape, int ndim)
    : framework_(Framework::other), object_(nb::borrow(given)), ndim_(ndim) {
  const Array& array = view_.emplace("out", given);
  require_output(array, shape, ndim);
  require_same_place(array, like);
  data_ = array.data();
  strides_ = strides_of(array);
}

Result::Result(const Array& like, const char* dtype, const std::int64_t* shape, int ndim)
    : framework_(like.framework()), like_(nb::borrow(like.object())), ndim_(ndim), dtype_(dtype) {
  std::copy_n(shape, ndim, shape_);
  if (framework_ == Framework::jax && like.on_cuda()) {
    const std::int64_t bytes = count(shape, ndim) * (element_type(dtype).bits / 8);
    memory_ = {Device::cuda(like.ordinal()), static_cast<std::size_t>(bytes)};
    data_ = memory_.data();
  } else {
    object_ = make_array(like, dtype, shape, ndim);
    data_ = view_.emplace("out", object_).data();
  }
  if (ndim == 4) {
    strides_ = contiguous_strides({shape[0], shape[1], shape[2], shape[3]});
  }
}

nb::object Result::finish(const Device& device) {
  return framework_ == Framework::jax ? finish_jax(device) : std::move(object_);
}

nb::object Result::finish_jax(const Device& device) {
  if (object_.is_valid()) {
    static const nb::handle to_jax = helper("to_jax");
    return to_jax(object_, like_);
  }
  // JAX names no stream, so the result is handed over when it is there.
  if (memory_.size() > 0) {
    std::byte last{};
    detail::copy_to_host(device, &last, memory_.data(), 1);
  }
  const int ordinal = memory_.device().ordinal();
  const nb::object capsule =
      dlpack_capsule(std::move(memory_), element_type(dtype_), shape_, ndim_);
  static const nb::handle import_jax = helper("import_jax");
  return import_jax(capsule, ordinal);
}

}  // namespace qattn::python
