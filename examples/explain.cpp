// Which kernel would run, and why not another: nothing is computed.
#include <qattn/qattn.hpp>

#include <cstdio>

int main() {
  const qattn::Device device = qattn::Device::best();
  std::printf("kernels for %s:\n", device.name().c_str());
  for (const qattn::KernelStatus& kernel : qattn::kernels(device)) {
    std::printf("  %-18s %s\n", kernel.name.c_str(),
                kernel.usable ? "usable" : kernel.reason.c_str());
  }

  // Only shapes count here, so the pointers may stay null.
  const qattn::Shape q_shape{1, 16, 32, 128};
  const qattn::Shape kv_shape{1, 4096, 8, 128};  // grouped heads, and more keys than queries
  const qattn::Int8Tensor q{static_cast<const std::int8_t*>(nullptr), q_shape,
                            qattn::per_head(nullptr)};
  const qattn::Int8Tensor kv{static_cast<const std::int8_t*>(nullptr), kv_shape,
                             qattn::per_head(nullptr)};
  const qattn::OutputTensor out{nullptr, q_shape};
  std::printf("this problem:\n%s", qattn::explain(device, q, kv, kv, out).to_string().c_str());

  // A wish that no kernel fulfils yet is refused with its name.
  qattn::Options options;
  options.mask = qattn::Mask::window(1024, 0);
  const qattn::Explanation windowed = qattn::explain(device, q, kv, kv, out, options);
  std::printf("with a window of 1024 keys:\n%s", windowed.to_string().c_str());
  return 0;
}
