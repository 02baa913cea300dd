// Arrays of any framework as pointer, shape and strides, without a copy.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <string>

#include "dlpack.hpp"
#include "frameworks.hpp"

namespace qattn::python {

/// Dimensions that an array may have here; the library knows no tensor with more than 4.
constexpr int kMaxDims = 4;

/// A view of an array argument. Keeps the array's memory valid while it lives.
class Array {
 public:
  /// Views `object`; `name` is the argument's, for errors. Throws TypeMismatch for what is no array
  /// and qattn::Error for what cannot be viewed.
  Array(const char* name, nanobind::handle object);
  Array(const Array&) = delete;  // an exporter may keep pointers into the buffer member
  Array& operator=(const Array&) = delete;
  ~Array();

  const char* name() const noexcept { return name_; }
  Framework framework() const noexcept { return type_.framework; }
  const dlpack::Tensor& tensor() const noexcept { return tensor_; }
  int ndim() const noexcept { return tensor_.ndim; }
  std::int64_t shape(int i) const noexcept { return shape_[static_cast<std::size_t>(i)]; }
  /// In elements.
  std::int64_t stride(int i) const noexcept { return strides_[static_cast<std::size_t>(i)]; }
  void* data() const noexcept;
  bool writable() const noexcept { return writable_; }
  bool is_empty() const noexcept;
  /// Row-major without gaps.
  bool is_compact() const noexcept;
  /// Bytes in the order of this machine, every stride a whole number of elements, data aligned.
  bool is_regular() const noexcept { return regular_; }
  bool on_cuda() const noexcept;
  int ordinal() const noexcept { return tensor_.device.id; }
  /// "cpu" or "cuda:N".
  std::string place() const;
  bool has_type(dlpack::TypeCode code, int bits) const noexcept {
    return tensor_.dtype.code == code && tensor_.dtype.bits == bits && tensor_.dtype.lanes == 1;
  }

  /// Element type and shape as the framework writes them, for errors.
  std::string dtype_text() const;
  std::string shape_text() const;

  /// The stream on which the framework puts its work now, for an array on a CUDA device; null is
  /// the legacy default stream, which stands for frameworks that have no current stream to ask for.
  void* current_stream() const;
  /// Replaces the view by one of a compact copy, made by the framework or, for one that is unknown
  /// and in host memory, by NumPy.
  void make_compact();
  nanobind::handle object() const noexcept { return object_; }

 private:
  void view();
  void view_exchange();
  void view_buffer();
  void view_capsule();
  void adopt(const dlpack::Tensor& tensor);
  void release() noexcept;

  const char* name_;
  nanobind::object object_;
  ArrayType type_;
  dlpack::Tensor tensor_{};
  std::array<std::int64_t, kMaxDims> shape_{};
  std::array<std::int64_t, kMaxDims> strides_{};
  bool writable_ = true;
  bool regular_ = true;
  Py_buffer buffer_{};        // obj is null when it holds nothing
  nanobind::object capsule_;  // of a DLPack export: owns it, since its name is left as it was
};

}  // namespace qattn::python
