#include "command/usage.hpp"

#include <algorithm>

namespace qattn::command {

std::string in_flags(std::string message) {
  const std::string option = "options.";
  if (message.rfind(option, 0) == 0) {
    const auto end = std::find(message.begin(), message.end(), ' ');
    std::replace(message.begin(), end, '_', '-');
    return message.replace(0, option.size(), "--");
  }
  for (const char* const tensor : {"q", "k", "v"}) {
    const std::string shape = std::string(tensor) + ".shape.";
    if (message.rfind(shape, 0) == 0) {
      return message.replace(0, shape.size(), std::string("--") + tensor + ": ");
    }
  }
  return message;
}

}  // namespace qattn::command
