// qattn: INT8 attention on the fastest kernel of whatever machine the program runs on.
#pragma once

#include "qattn/buffer.hpp"      // IWYU pragma: export
#include "qattn/device.hpp"      // IWYU pragma: export
#include "qattn/error.hpp"       // IWYU pragma: export
#include "qattn/forward.hpp"     // IWYU pragma: export
#include "qattn/introspect.hpp"  // IWYU pragma: export
#include "qattn/mask.hpp"        // IWYU pragma: export
#include "qattn/options.hpp"     // IWYU pragma: export
#include "qattn/quantize.hpp"    // IWYU pragma: export
#include "qattn/tensor.hpp"      // IWYU pragma: export
#include "qattn/version.hpp"     // IWYU pragma: export
