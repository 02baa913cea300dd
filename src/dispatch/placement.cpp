#include "dispatch/placement.hpp"

#include <array>
#include <string>

#include "cuda/device.hpp"
#include "qattn/error.hpp"

namespace qattn::dispatch {
namespace {

using Placement = cuda::Placement;

std::string place_name(const Placement& place) {
  return place.kind == Placement::Kind::host ? "host memory"
                                             : "memory of cuda:" + std::to_string(place.ordinal);
}

[[noreturn]] void refuse(const Argument& argument, const Placement& place,
                         const std::string& allowed) {
  throw Error(ErrorCode::invalid_argument, std::string(argument.name) + " lies in " +
                                               place_name(place) + " (allowed: " + allowed + ")");
}

}  // namespace

bool check_memory(const Device& device, std::span<const Argument> arguments) {
  const bool on_cpu = device.kind() == Device::Kind::cpu;
  const Argument* first = nullptr;  // decides between host and device; managed memory fits both
  bool host = on_cpu;
  for (const Argument& argument : arguments) {
    if (argument.pointer == nullptr) continue;
    const Placement place = cuda::place(argument.pointer);
    if (place.kind == Placement::Kind::managed) continue;
    const bool is_host = place.kind == Placement::Kind::host;
    if (on_cpu) {
      if (!is_host) refuse(argument, place, "host memory, for device cpu");
      continue;
    }
    if (!is_host && place.ordinal != device.ordinal()) {
      refuse(argument, place, "memory of the device of the call, " + device.name());
    }
    if (first == nullptr) {
      first = &argument;
      host = is_host;
    } else if (host != is_host) {
      refuse(argument, place,
             std::string("the same as ") + first->name +
                 ": all in host memory or all in memory of " + device.name());
    }
  }
  return host;
}

bool check_placement(const Device& device, const Int8Tensor& q, const Int8Tensor& k,
                     const Int8Tensor& v, const OutputTensor& out, const Options& options) {
  const std::array<Argument, 8> arguments = {{{"q.data", q.data},
                                              {"k.data", k.data},
                                              {"v.data", v.data},
                                              {"q.scale.data", q.scale.data},
                                              {"k.scale.data", k.scale.data},
                                              {"v.scale.data", v.scale.data},
                                              {"out.data", out.data},
                                              {"options.lse", options.lse}}};
  const bool host = check_memory(device, arguments);
  if (options.workspace != nullptr) {
    const Argument workspace{"options.workspace", options.workspace};
    const Placement place = cuda::place(options.workspace);
    const bool on_cpu = device.kind() == Device::Kind::cpu;
    const bool is_host = place.kind == Placement::Kind::host;
    if (place.kind != Placement::Kind::managed &&
        (is_host != on_cpu || (!on_cpu && place.ordinal != device.ordinal()))) {
      refuse(workspace, place, "memory of the device of the call, " + device.name());
    }
  }
  return host;
}

}  // namespace qattn::dispatch
