#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "calls.hpp"
#include "errors.hpp"
#include "qattn/device.hpp"
#include "qattn/introspect.hpp"
#include "qattn/version.hpp"

namespace nb = nanobind;

namespace qattn::python {
namespace {

// Plain tuples and dictionaries: the Python layer gives them their types.

nb::list kernels_call(bool cuda, int ordinal) {
  nb::list list;
  for (const KernelStatus& status : kernels(cuda ? Device::cuda(ordinal) : Device::cpu())) {
    list.append(nb::make_tuple(status.name, status.usable, status.reason));
  }
  return list;
}

nb::dict machine_info_call() {
  MachineInfo info;
  {
    const nb::gil_scoped_release release;  // CUDA may take a second to initialise
    info = machine_info();
  }
  nb::list features;
  for (const std::string& feature : info.cpu_features) features.append(feature);
  nb::list devices;
  for (const CudaDeviceInfo& device : info.cuda_devices) {
    devices.append(nb::make_tuple(device.ordinal, device.name,
                                  nb::make_tuple(device.capability_major, device.capability_minor),
                                  device.multiprocessors, device.memory_bytes));
  }
  nb::dict fields;
  fields["version"] = version();
  fields["cpu"] = info.cpu;
  fields["cpu_features"] = nb::tuple(features);
  fields["cpu_threads"] = info.cpu_threads;
  fields["cuda"] = info.cuda;
  fields["cuda_driver"] = info.cuda_driver;
  fields["cuda_runtime"] = info.cuda_runtime;
  fields["cuda_devices"] = nb::tuple(devices);
  return fields;
}

bool best_is_cuda() {
  const nb::gil_scoped_release release;
  return Device::best().kind() == Device::Kind::cuda;
}

}  // namespace

void bind_introspection(nb::module_& module) {
  module.attr("version") = version();
  module.def("kernels", &kernels_call);
  module.def("machine_info", &machine_info_call);
  module.def("best_is_cuda", &best_is_cuda);
}

}  // namespace qattn::python

NB_MODULE(_qattn, module) {
  qattn::python::register_errors();
  qattn::python::bind_calls(module);
  qattn::python::bind_introspection(module);
}
