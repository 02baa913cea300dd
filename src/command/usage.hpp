// The library's messages in the words of the command line.
#pragma once

#include <string>

namespace qattn::command {

/// A message that begins with an argument of forward() begins with the flag that sets it:
/// "options.softmax_scale is nan" becomes "--softmax-scale is nan", "q.shape.heads is 3" becomes
/// "--q: heads is 3". Other messages stay as they are.
std::string in_flags(std::string message);

}  // namespace qattn::command
