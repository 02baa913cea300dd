// The functions of the extension module; their documentation is that of the Python functions.
#pragma once

#include <nanobind/nanobind.h>

namespace qattn::python {

/// Adds forward, explain and quantize to the module.
void bind_calls(nanobind::module_& module);
/// Adds kernels, machine_info and version to the module.
void bind_introspection(nanobind::module_& module);

}  // namespace qattn::python
