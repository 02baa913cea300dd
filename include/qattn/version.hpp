// Version of the library: macros for the preprocessor, version() for the linked binary.
#pragma once

#include "qattn/export.hpp"

#define QATTN_VERSION_MAJOR 0
#define QATTN_VERSION_MINOR 1
#define QATTN_VERSION_PATCH 0

namespace qattn {

/// Version of the binary that is linked, "major.minor.patch". It can differ from the
/// QATTN_VERSION_* macros when a program runs with another shared library than it was built with.
QATTN_API const char* version() noexcept;

}  // namespace qattn
