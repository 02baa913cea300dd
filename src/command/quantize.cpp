#include "command/quantize.hpp"

#include <cmath>

#include "command/input_error.hpp"
#include "qattn/qattn.hpp"

namespace qattn::command {
namespace {

// The library names the head; a file's owner wants the place.
[[noreturn]] void refuse_values(const std::vector<float>& tensor, std::int64_t heads,
                                std::int64_t head_dim, const std::string& name,
                                const std::string& refusal) {
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    if (std::isfinite(tensor[i])) continue;
    const std::size_t head =
        i / static_cast<std::size_t>(head_dim) % static_cast<std::size_t>(heads);
    throw InputError(name + ": head " + std::to_string(head) + " holds " +
                     (std::isnan(tensor[i]) ? "NaN" : "infinity") + " at element " +
                     std::to_string(i) + " (allowed: finite values)");
  }
  throw InputError(name + ": " + refusal);
}

}  // namespace

Quantized quantize(const std::vector<float>& tensor, std::int64_t heads, std::int64_t head_dim,
                   const std::string& name) {
  Quantized result;
  result.values.resize(tensor.size());
  result.scales.resize(static_cast<std::size_t>(heads));
  const std::int64_t tokens = static_cast<std::int64_t>(tensor.size()) / (heads * head_dim);
  try {
    qattn::quantize(Device::cpu(), tensor.data(), result.values.data(), result.scales.data(), 1,
                    tokens, heads, head_dim);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    refuse_values(tensor, heads, head_dim, name, error.what());
  }
  return result;
}

}  // namespace qattn::command
