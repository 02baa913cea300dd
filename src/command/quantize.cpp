#include "command/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "command/input_error.hpp"

namespace qattn::command {
namespace {

constexpr double kLargest = 127.0;

// Smallest float32 scale near largest / 127 with which `largest` still rounds to 127 or less: where
// the quotient is subnormal its rounding to float32 can be off by a half.
float scale_for(float largest) {
  if (largest == 0) return 1.0F;
  auto scale = static_cast<float>(static_cast<double>(largest) / kLargest);
  while (static_cast<double>(largest) > (kLargest + 0.5) * static_cast<double>(scale)) {
    scale = std::nextafter(scale, std::numeric_limits<float>::max());
  }
  return scale;
}

}  // namespace

Quantized quantize(const std::vector<float>& tensor, std::int64_t heads, std::int64_t head_dim,
                   const std::string& name) {
  const auto head_of = [&](std::size_t i) {
    return i / static_cast<std::size_t>(head_dim) % static_cast<std::size_t>(heads);
  };
  std::vector<float> largest(static_cast<std::size_t>(heads), 0.0F);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    if (!std::isfinite(tensor[i])) {
      throw InputError(name + ": head " + std::to_string(head_of(i)) + " holds " +
                       (std::isnan(tensor[i]) ? "NaN" : "infinity") + " at element " +
                       std::to_string(i) + " (allowed: finite values)");
    }
    float& head = largest[head_of(i)];
    head = std::max(head, std::abs(tensor[i]));
  }

  Quantized result;
  for (const float value : largest) result.scales.push_back(scale_for(value));
  result.values.reserve(tensor.size());
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    // nearbyint: to nearest even, the default rounding mode.
    const double quotient = static_cast<double>(tensor[i]) / result.scales[head_of(i)];
    const double rounded = std::clamp(std::nearbyint(quotient), -kLargest, kLargest);
    result.values.push_back(static_cast<std::int8_t>(rounded));
  }
  return result;
}

}  // namespace qattn::command
