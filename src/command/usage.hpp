// The library's messages in the words of the command line.
#pragma once

#include <string>

#include "command/tensors.hpp"

namespace qattn::command {

/// A message that begins with an argument of forward() begins with the flag that sets it:
/// "options.softmax_scale is nan" becomes "--softmax-scale is nan", "q.shape.heads is 3" becomes
/// "--q: heads is 3". Other messages stay as they are.
std::string in_flags(std::string message);

/// The same for tensors that no flag names one by one: "q.shape.head_dim is 257" becomes
/// "layer00_q.npy: head_dim is 257".
std::string in_files(std::string message, const TensorFiles& files);

}  // namespace qattn::command
