#include "capi/structs.hpp"

#include <string>

#include "capi/status.hpp"

namespace qattn::capi {
namespace {

// Beyond every struct to come; a larger size is an uninitialised one.
constexpr std::size_t kMaxStructSize = 4096;

}  // namespace

void check_struct(const char* name, const void* pointer, std::size_t struct_size) {
  if (pointer == nullptr) refuse(std::string(name) + " is null (allowed: a struct)");
  if (struct_size < 8 || struct_size > kMaxStructSize || struct_size % 8 != 0) {
    refuse(std::string(name) + ".struct_size is " + std::to_string(struct_size) +
           " (allowed: the size of the struct, as its initialiser stores it)");
  }
}

void check_unknown_fields(const char* name, const void* pointer, std::size_t struct_size,
                          std::size_t known_size) {
  const auto* bytes = static_cast<const unsigned char*>(pointer);
  for (std::size_t i = known_size; i < struct_size; ++i) {
    if (bytes[i] == 0) continue;
    refuse(std::string(name) + " has a field set at byte " + std::to_string(i) +
           " that this version of the library does not know (it knows " +
           std::to_string(known_size) + " bytes; allowed: 0 in those that follow)");
  }
}

}  // namespace qattn::capi
