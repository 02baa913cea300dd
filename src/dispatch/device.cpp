#include "qattn/device.hpp"

#include "cuda/device.hpp"
#include "dispatch/select.hpp"
#include "dispatch/table.hpp"

namespace qattn {

Device Device::best() noexcept {
  try {
    const core::FeatureSet have = cuda::features(0);
    const dispatch::Selection selection{dispatch::table(), Kind::cuda, have, nullptr, {}};
    if (dispatch::select(selection) != nullptr) return Device::cuda(0);
  } catch (...) {
    // Whatever keeps CUDA from answering keeps it from being the best device.
  }
  return Device::cpu();
}

Device Device::for_data(const void* pointer) noexcept {
  const cuda::Placement place = cuda::place(pointer);
  return place.kind == cuda::Placement::Kind::host ? Device::cpu() : Device::cuda(place.ordinal);
}

std::string Device::name() const {
  return kind_ == Kind::cpu ? "cpu" : "cuda:" + std::to_string(ordinal_);
}

}  // namespace qattn
