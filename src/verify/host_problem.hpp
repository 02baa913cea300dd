// An attention problem that owns its tensors in host memory: what `qattn verify`, the tests and the
// benchmark make, run on any device, and compare with the float64 reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qattn/qattn.hpp"

namespace qattn::verify {

/// Extents and options of a problem.
struct Dimensions {
  std::int64_t batch = 1;
  std::int64_t seq_q = 1;
  std::int64_t seq_k = 1;
  std::int64_t heads_q = 1;
  std::int64_t heads_kv = 1;
  std::int64_t head_dim = 64;
  /// "B2xSq72xSk72xHq4xHkv4xD32".
  std::string to_string() const;
};

/// Contiguous host tensors with per-head scales.
struct HostProblem {
  Dimensions dimensions;
  Mask mask = Mask::causal();
  std::optional<float> softmax_scale;
  std::vector<std::int8_t> q, k, v;
  std::vector<float> q_scale, k_scale, v_scale;

  /// Views of the tensors above, in host memory.
  Int8Tensor q_view() const;
  Int8Tensor k_view() const;
  Int8Tensor v_view() const;
  Shape out_shape() const;
  std::int64_t out_size() const;
  std::int64_t lse_size() const;
  /// Options with this problem's mask and softmax_scale.
  Options options(Precision precision, const std::string& kernel = {}) const;
};

/// Result of a run.
struct Result {
  std::vector<float> out;  // (batch, seq_q, heads_q, head_dim)
  std::vector<float> lse;  // (batch, heads_q, seq_q)
};

/// A problem's tensors in the memory of a device, with room for the result: for runs that are timed
/// or repeated. The HostProblem must outlive it.
class PlacedProblem {
 public:
  /// Copies the tensors; fills out and lse with NaN.
  PlacedProblem(const HostProblem& problem, const Device& device);
  /// Calls qattn::forward() once; on a CUDA device it does not wait.
  void forward(Precision precision, const std::string& kernel = {}, int threads = 0);
  /// Waits for all work on the device's stream.
  void wait();
  /// Waits and copies the result to the host.
  Result result() const;

 private:
  const HostProblem& problem_;
  Device device_;
  Buffer<std::int8_t> q_, k_, v_;
  Buffer<float> q_scale_, k_scale_, v_scale_, out_, lse_, token_;
};

/// Runs `problem` on `device` with `kernel` forced (empty: selection picks). On a CUDA device the
/// tensors are copied to device memory and used in place. out and lse are filled with NaN first.
Result run(const HostProblem& problem, const Device& device, Precision precision,
           const std::string& kernel = {}, int threads = 0);

/// The float64 reference's result, rounded to float32.
Result run_reference(const HostProblem& problem);

/// Problem of random int8 tensors, uniform over -128..127, with distinct, non-unit scales for every
/// head; scores come out with standard deviation near `score_sd` (0.75 to 1.25 of it by head). The
/// same seed gives the same problem on every machine.
HostProblem random_problem(const Dimensions& dimensions, Mask mask, std::uint64_t seed,
                           double score_sd = 1.0);

}  // namespace qattn::verify
