#include "command/usage.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace qattn::command {
namespace {

// A message that begins with the shape of q, k or v begins with what stands for that tensor.
std::string with_tensors_called(std::string message, const TensorFiles& names) {
  const std::pair<const char*, const std::string&> tensors[] = {
      {"q.shape.", names.q}, {"k.shape.", names.k}, {"v.shape.", names.v}};
  for (const auto& [shape, name] : tensors) {
    if (message.rfind(shape, 0) == 0) {
      return message.replace(0, std::strlen(shape), name + ": ");
    }
  }
  return message;
}

}  // namespace

std::string in_flags(std::string message) {
  const std::string option = "options.";
  if (message.rfind(option, 0) == 0) {
    const auto end = std::find(message.begin(), message.end(), ' ');
    std::replace(message.begin(), end, '_', '-');
    return message.replace(0, option.size(), "--");
  }
  return with_tensors_called(std::move(message), {"--q", "--k", "--v", {}, {}, {}});
}

std::string in_files(std::string message, const TensorFiles& files) {
  return with_tensors_called(std::move(message), files);
}

}  // namespace qattn::command
