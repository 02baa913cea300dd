// The tensors of `qattn run` and `qattn demo`: read, checked, quantised where they are floats.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qattn/qattn.hpp"
#include "verify/float_attention.hpp"
#include "verify/host_problem.hpp"

namespace qattn::command {

/// Files of a problem; the scales' are empty for float tensors.
struct TensorFiles {
  std::string q, k, v;
  std::string q_scale, k_scale, v_scale;
};

/// A problem as read.
struct LoadedProblem {
  verify::HostProblem problem;                   // quantised
  std::optional<verify::FloatProblem> original;  // before quantising, if the files hold floats
  int rank = 4;                                  // of q's file: 3 without a batch dimension
};

/// Reads the files. q is (batch, seq_q, heads_q, head_dim), k and v are (batch, seq_k, heads_kv,
/// head_dim), or all without batch; int8 with float32 scales (heads,), or float32 or float16
/// without. Throws InputError.
LoadedProblem load_tensors(const TensorFiles& files, const Mask& mask,
                           std::optional<float> softmax_scale);

}  // namespace qattn::command
