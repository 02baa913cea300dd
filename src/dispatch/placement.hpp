// Where the tensors of a call lie, and whether the device can reach them.
#pragma once

#include <span>

#include "qattn/device.hpp"
#include "qattn/options.hpp"
#include "qattn/tensor.hpp"

namespace qattn::dispatch {

/// A pointer of a call and its name in messages.
struct Argument {
  const char* name;
  const void* pointer;
};

/// True if all arguments lie in host memory, false if all lie where `device` uses them in place;
/// null pointers lie anywhere. Throws Error(invalid_argument), naming the first one that lies
/// elsewhere. Does not initialise CUDA on behalf of a CPU device.
bool check_memory(const Device& device, std::span<const Argument> arguments);

/// check_memory() for the tensors of forward(); the workspace must lie in the device's own memory.
bool check_placement(const Device& device, const Int8Tensor& q, const Int8Tensor& k,
                     const Int8Tensor& v, const OutputTensor& out, const Options& options);

}  // namespace qattn::dispatch
