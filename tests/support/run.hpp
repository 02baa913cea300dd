// Runs a problem on one kernel with the output poisoned and bordered, and compares results.
#pragma once

#include <cstdint>
#include <vector>

#include "support/kernel_param.hpp"
#include "verify/host_problem.hpp"

namespace qattn::test {

/// `size` floats in a device's memory between two borders. All is filled with NaNs of a fixed
/// pattern that no arithmetic produces.
class BorderedFloats {
 public:
  BorderedFloats(const Device& device, std::int64_t size);
  float* data() { return memory_.data() + kBorder; }
  /// Copies the floats to the host, adding failures where a border changed.
  std::vector<float> take(const char* name);

 private:
  static constexpr std::int64_t kBorder = 128;
  std::int64_t size_;
  Buffer<float> memory_;
};

/// Whether a float still has the pattern that BorderedFloats was filled with.
bool is_unwritten(float value);

/// What a run may vary besides the problem.
struct RunSettings {
  Precision precision = Precision::high;
  int threads = 0;
  Executor executor;
  bool lse = true;
};

/// Runs `problem` with `kernel` forced, in the memory of its device. Adds failures where an entry
/// was not written or memory beside the outputs was.
verify::Result run_guarded(const KernelCase& kernel, const verify::HostProblem& problem,
                           const RunSettings& settings = {});

/// Adds failures where `got` leaves the error bounds of docs/numerics.md around `expected`; for the
/// reference the bound is that of rounding to float32.
void expect_close(const KernelCase& kernel, const verify::HostProblem& problem,
                  const verify::Result& got, const verify::Result& expected, Precision precision);

/// Runs `problem` with `kernel` forced at both precisions and compares with the plain loops.
void expect_oracle(const KernelCase& kernel, const verify::HostProblem& problem);

/// Adds failures where `got` leaves the bounds that docs/numerics.md proves for any input: those of
/// problems made to be hard. ||error|| of a row against sum_j P_j ||v_j||, P from the plain loops.
void expect_within_proof(const KernelCase& kernel, const verify::HostProblem& problem,
                         const verify::Result& got, Precision precision);

/// Adds a failure that names the first entry whose bits differ.
void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected,
                      const char* what);
void expect_same_bits(const verify::Result& got, const verify::Result& expected);

/// Bits of each of the floats; lets GoogleTest compare and print them.
std::uint32_t bits_of(float value);

}  // namespace qattn::test
