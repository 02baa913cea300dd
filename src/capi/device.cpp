// Devices and their memory.
#include "qattn/device.hpp"

#include <cstring>
#include <string>

#include "capi/convert.hpp"
#include "capi/status.hpp"
#include "capi/structs.hpp"
#include "qattn/buffer.hpp"

namespace qattn::capi {
namespace {

qattn_status write_device(qattn_device* to, std::size_t struct_size, const Device& device) {
  return guarded([&] {
    qattn_device value = default_device();
    value.kind = static_cast<std::int32_t>(device.kind());
    value.ordinal = device.ordinal();
    value.stream = device.stream();
    write_struct("device", to, struct_size, value);
  });
}

void require(const char* name, const void* pointer) {
  if (pointer == nullptr) refuse(std::string(name) + " is null (allowed: memory)");
}

}  // namespace
}  // namespace qattn::capi

using qattn::Device;
using qattn::capi::guarded;
using qattn::capi::refuse;
using qattn::capi::require;
using qattn::capi::to_device;
using qattn::capi::write_device;

extern "C" {

qattn_status qattn_device_cpu(qattn_device* device, size_t struct_size) {
  return write_device(device, struct_size, Device::cpu());
}

qattn_status qattn_device_cuda(qattn_device* device, size_t struct_size, int32_t ordinal,
                               void* stream) {
  return write_device(device, struct_size, Device::cuda(ordinal, stream));
}

qattn_status qattn_device_best(qattn_device* device, size_t struct_size) {
  return write_device(device, struct_size, Device::best());
}

qattn_status qattn_device_for_data(qattn_device* device, size_t struct_size, const void* pointer) {
  return write_device(device, struct_size, Device::for_data(pointer));
}

qattn_status qattn_device_name(const qattn_device* device, char* buffer, size_t bytes) {
  return guarded([&] {
    const std::string name = to_device(device).name();
    require("buffer", buffer);
    if (bytes <= name.size()) {
      refuse("bytes is " + std::to_string(bytes) + " (allowed: at least " +
             std::to_string(name.size() + 1) + " for this name)");
    }
    std::memcpy(buffer, name.c_str(), name.size() + 1);
  });
}

qattn_status qattn_allocate(const qattn_device* device, size_t bytes, void** pointer) {
  return guarded([&] {
    require("pointer", pointer);
    *pointer = nullptr;
    *pointer = qattn::detail::allocate(to_device(device), bytes, 1);
  });
}

qattn_status qattn_free(const qattn_device* device, void* pointer) {
  return guarded([&] { qattn::detail::deallocate(to_device(device), pointer); });
}

qattn_status qattn_copy_to_device(const qattn_device* device, void* to, const void* from,
                                  size_t bytes) {
  return guarded([&] {
    const Device target = to_device(device);
    if (bytes == 0) return;
    require("to", to);
    require("from", from);
    qattn::detail::copy_to_device(target, to, from, bytes);
  });
}

qattn_status qattn_copy_to_host(const qattn_device* device, void* to, const void* from,
                                size_t bytes) {
  return guarded([&] {
    const Device source = to_device(device);
    if (bytes == 0) return;
    require("to", to);
    require("from", from);
    qattn::detail::copy_to_host(source, to, from, bytes);
  });
}

}  // extern "C"
