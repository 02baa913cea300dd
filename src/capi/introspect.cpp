// Kernels, explanations and the machine, as handles with getters.
#include "qattn/introspect.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/convert.hpp"
#include "capi/status.hpp"
#include "capi/structs.hpp"

struct qattn_kernel_list {
  std::vector<qattn::KernelStatus> kernels;
};

struct qattn_explanation {
  qattn::Explanation explanation;
  std::string text;
  qattn_kernel_list passed_over;
};

struct qattn_machine {
  qattn::MachineInfo info;
};

namespace qattn::capi {
namespace {

static_assert(sizeof(qattn_cuda_device) == 40);

// Runs make(), which returns a handle in a unique_ptr, and hands the handle over; null on an error.
template <typename Handle, typename Make>
qattn_status give_handle(const char* name, Handle** to, Make make) {
  return guarded([&] {
    if (to == nullptr) {
      refuse(std::string(name) + " is null (allowed: where to write the handle)");
    }
    *to = nullptr;
    *to = make().release();
  });
}

const KernelStatus* entry(const qattn_kernel_list* list, std::size_t index) noexcept {
  return list == nullptr || index >= list->kernels.size() ? nullptr : &list->kernels[index];
}

}  // namespace
}  // namespace qattn::capi

using qattn::capi::entry;
using qattn::capi::give_handle;
using qattn::capi::to_device;
using qattn::capi::to_options;
using qattn::capi::to_output;
using qattn::capi::to_tensor;

extern "C" {

qattn_status qattn_kernels(const qattn_device* device, qattn_kernel_list** list) {
  return give_handle("list", list, [&] {
    return std::make_unique<qattn_kernel_list>(
        qattn_kernel_list{qattn::kernels(to_device(device))});
  });
}

void qattn_kernel_list_free(qattn_kernel_list* list) { delete list; }

size_t qattn_kernel_list_size(const qattn_kernel_list* list) {
  return list == nullptr ? 0 : list->kernels.size();
}

const char* qattn_kernel_list_name(const qattn_kernel_list* list, size_t index) {
  const qattn::KernelStatus* kernel = entry(list, index);
  return kernel == nullptr ? nullptr : kernel->name.c_str();
}

int32_t qattn_kernel_list_usable(const qattn_kernel_list* list, size_t index) {
  const qattn::KernelStatus* kernel = entry(list, index);
  return kernel != nullptr && kernel->usable ? 1 : 0;
}

const char* qattn_kernel_list_reason(const qattn_kernel_list* list, size_t index) {
  const qattn::KernelStatus* kernel = entry(list, index);
  return kernel == nullptr ? nullptr : kernel->reason.c_str();
}

qattn_status qattn_explain(const qattn_device* device, const qattn_tensor* q, const qattn_tensor* k,
                           const qattn_tensor* v, const qattn_output* out,
                           const qattn_options* options, qattn_explanation** explanation) {
  return give_handle("explanation", explanation, [&] {
    auto handle = std::make_unique<qattn_explanation>();
    handle->explanation = qattn::explain(to_device(device), to_tensor("q", q), to_tensor("k", k),
                                         to_tensor("v", v), to_output(out), to_options(options));
    handle->text = handle->explanation.to_string();
    handle->passed_over.kernels = handle->explanation.passed_over;
    return handle;
  });
}

void qattn_explanation_free(qattn_explanation* explanation) { delete explanation; }

const char* qattn_explanation_kernel(const qattn_explanation* explanation) {
  return explanation == nullptr ? nullptr : explanation->explanation.kernel.c_str();
}

const char* qattn_explanation_error(const qattn_explanation* explanation) {
  return explanation == nullptr ? nullptr : explanation->explanation.error.c_str();
}

const char* qattn_explanation_text(const qattn_explanation* explanation) {
  return explanation == nullptr ? nullptr : explanation->text.c_str();
}

const qattn_kernel_list* qattn_explanation_passed_over(const qattn_explanation* explanation) {
  return explanation == nullptr ? nullptr : &explanation->passed_over;
}

qattn_status qattn_machine_info(qattn_machine** machine) {
  return give_handle("machine", machine, [] {
    return std::make_unique<qattn_machine>(qattn_machine{qattn::machine_info()});
  });
}

void qattn_machine_free(qattn_machine* machine) { delete machine; }

const char* qattn_machine_cpu(const qattn_machine* machine) {
  return machine == nullptr ? nullptr : machine->info.cpu.c_str();
}

size_t qattn_machine_cpu_feature_count(const qattn_machine* machine) {
  return machine == nullptr ? 0 : machine->info.cpu_features.size();
}

const char* qattn_machine_cpu_feature(const qattn_machine* machine, size_t index) {
  if (index >= qattn_machine_cpu_feature_count(machine)) return nullptr;
  return machine->info.cpu_features[index].c_str();
}

int32_t qattn_machine_cpu_threads(const qattn_machine* machine) {
  return machine == nullptr ? 0 : machine->info.cpu_threads;
}

const char* qattn_machine_cuda(const qattn_machine* machine) {
  return machine == nullptr ? nullptr : machine->info.cuda.c_str();
}

int32_t qattn_machine_cuda_driver(const qattn_machine* machine) {
  return machine == nullptr ? 0 : machine->info.cuda_driver;
}

int32_t qattn_machine_cuda_runtime(const qattn_machine* machine) {
  return machine == nullptr ? 0 : machine->info.cuda_runtime;
}

size_t qattn_machine_cuda_device_count(const qattn_machine* machine) {
  return machine == nullptr ? 0 : machine->info.cuda_devices.size();
}

qattn_status qattn_machine_cuda_device(const qattn_machine* machine, size_t index,
                                       qattn_cuda_device* device, size_t struct_size) {
  return qattn::capi::guarded([&] {
    const size_t count = qattn_machine_cuda_device_count(machine);
    if (index >= count) {
      qattn::capi::refuse("index is " + std::to_string(index) + " (allowed: below " +
                          std::to_string(count) + ", the number of CUDA devices)");
    }
    const qattn::CudaDeviceInfo& info = machine->info.cuda_devices[index];
    qattn_cuda_device value{};
    value.ordinal = info.ordinal;
    value.capability_major = info.capability_major;
    value.capability_minor = info.capability_minor;
    value.multiprocessors = info.multiprocessors;
    value.memory_bytes = info.memory_bytes;
    value.name = info.name.c_str();
    qattn::capi::write_struct("device", device, struct_size, value);
  });
}

}  // extern "C"
