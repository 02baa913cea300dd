#include "qattn/version.hpp"

#define QATTN_TEXT_OF(number) #number
#define QATTN_TEXT(number) QATTN_TEXT_OF(number)

namespace qattn {

const char* version() noexcept {
  return QATTN_TEXT(QATTN_VERSION_MAJOR) "." QATTN_TEXT(QATTN_VERSION_MINOR) "." QATTN_TEXT(
      QATTN_VERSION_PATCH);
}

}  // namespace qattn
