// The array frameworks: which one a type belongs to, and what only the framework itself can do.
#pragma once

#include <nanobind/nanobind.h>

#include "dlpack.hpp"

namespace qattn::python {

/// Who made an array: decides how results are made and which stream is current.
enum class Framework { numpy, torch, cupy, jax, other };

/// What there is to know of a type of arrays.
struct ArrayType {
  Framework framework = Framework::other;
  const dlpack::ExchangeApi* exchange = nullptr;
  bool buffer = false;  ///< view it through Python's buffer protocol
};

/// Looked up once per type. Throws TypeMismatch, naming the argument, for what is no array.
ArrayType array_type(const char* argument, nanobind::handle object);

/// The stream that the framework works on now, on CUDA device `ordinal`; null is the legacy default
/// stream, which also stands for frameworks that name none.
void* current_stream(const ArrayType& type, int ordinal);

/// A function of a Python module, looked up and never released: for static variables.
nanobind::handle python_function(const char* module, const char* name);
/// One of the package's own helpers for frameworks.
nanobind::handle helper(const char* name);

/// A compact copy made by the array's framework.
nanobind::object compact_copy(nanobind::handle array);

}  // namespace qattn::python
