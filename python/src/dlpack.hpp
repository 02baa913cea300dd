// The part of DLPack's C ABI (major version 1) that the binding uses, laid out as the DLPack
// specification says. Field names follow this project; the layout is the contract.
#pragma once

#include <cstdint>

namespace qattn::python::dlpack {

constexpr std::uint32_t kMajorVersion = 1;
constexpr std::uint64_t kReadOnly = 1;  // bit of ManagedTensorVersioned::flags

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
enum TypeCode : std::uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct ElementType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  ElementType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null before version 1.2 for a compact row-major tensor
  std::uint64_t byte_offset;
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

// What a capsule "dltensor" holds: producers that know no versions.
struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

// What a capsule "dltensor_versioned" holds.
struct ManagedTensorVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedTensorVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

// The table that an array type offers as __dlpack_c_exchange_api__: views and the current stream
// without a Python call. Functions return 0, or -1 with a Python exception set.
struct ExchangeApi {
  Version version;
  ExchangeApi* previous;
  int (*allocate)(Tensor*, ManagedTensorVersioned**, void*,
                  void (*)(void*, const char*, const char*));
  int (*export_managed)(void*, ManagedTensorVersioned**);
  int (*import_managed)(ManagedTensorVersioned*, void**);
  int (*view)(void* object, Tensor* out);  // may be null; valid while the object lives
  int (*current_stream)(DeviceType, std::int32_t device_id, void** stream);
};

}  // namespace qattn::python::dlpack
