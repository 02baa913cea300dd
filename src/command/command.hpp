// The sub-commands of `qattn`. Each returns the exit code: 0, or 1 where a check failed. They throw
// InputError or qattn::Error where the command exits with code 2.
#pragma once

#include <optional>
#include <string>

#include "command/tensors.hpp"

namespace qattn::command {

/// `qattn info`: the machine and its kernels.
struct InfoOptions {
  bool json = false;
};
int info(const InfoOptions& options);

/// `qattn verify`: all kernels against the reference on built-in cases.
struct VerifyOptions {
  bool quick = false;
  std::string kernel;  // empty: all usable ones
  bool json = false;
};
int verify(const VerifyOptions& options);

/// `qattn run`: attention over tensors in files.
struct RunOptions {
  TensorFiles files;
  std::string out;
  std::string lse;
  std::string device = "auto";
  std::string kernel;
  std::string mask = "causal";
  std::string precision = "high";
  std::optional<float> softmax_scale;
  int threads = 0;
  int repeat = 5;
  bool check = false;
  bool json = false;
};
int run(const RunOptions& options);

/// `qattn demo`: a table of times and errors over the stored tensors of a real model.
struct DemoOptions {
  std::string data = "tests/data";
  std::string device = "auto";
  bool best = false;  // only the best kernel
  int repeat = 5;
};
int demo(const DemoOptions& options);

}  // namespace qattn::command
