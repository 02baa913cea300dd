// Fields that the chosen kind of an argument does not read. Ignoring one that was set would compute
// something else than was asked for.
#pragma once

#include <cstdint>

#include "qattn/mask.hpp"
#include "qattn/options.hpp"
#include "qattn/tensor.hpp"

namespace qattn::core {

/// Each throws Error(invalid_argument) with the name of the first such field that is set.
void refuse_unused(const Mask& mask);
void refuse_unused(const char* name, const Int8Tensor& tensor);
void refuse_unused(const OutputTensor& out);
void refuse_unused(const Executor& executor);
/// `granularity` and `block_tokens` of the argument that `name` and `field` together name.
void refuse_unused_block(const char* name, const char* field, Scale::Granularity granularity,
                         std::int64_t block_tokens);

}  // namespace qattn::core
