// Arrays that a call writes: given by the caller or made in the framework of its inputs.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "array.hpp"
#include "qattn/buffer.hpp"
#include "qattn/device.hpp"
#include "qattn/tensor.hpp"

namespace qattn::python {

/// One result of a call: memory to write before the call, an array for the caller after it.
class Result {
 public:
  /// An output that the caller brought; refused unless it is a float array of this shape.
  Result(nanobind::handle given, const Array& like, const std::int64_t* shape, int ndim);
  /// A new array of the framework of `like`, on its device; `dtype` of static storage.
  Result(const Array& like, const char* dtype, const std::int64_t* shape, int ndim);

  void* data() const noexcept { return data_; }
  /// The array that the caller brought.
  const Array& array() const noexcept { return *view_; }
  /// Of a result with 4 dimensions.
  Strides strides() const noexcept { return strides_; }
  /// The array for the caller, once the work on `device` has been put on its stream.
  nanobind::object finish(const Device& device);

 private:
  nanobind::object finish_jax(const Device& device);

  Framework framework_;
  nanobind::object like_;
  nanobind::object object_;
  std::optional<Array> view_;  // keeps the memory of object_ where it is
  Buffer<std::byte> memory_;   // of a JAX array to be on a CUDA device; JAX has no writable arrays
  std::int64_t shape_[kMaxDims] = {};
  int ndim_;
  std::string_view dtype_;
  void* data_ = nullptr;
  Strides strides_;
};

}  // namespace qattn::python
