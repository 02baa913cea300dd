#include "support/run.hpp"

#include <cmath>
#include <cstring>

#include "support/call_counter.hpp"
#include "support/device_inputs.hpp"
#include "support/oracle.hpp"
#include "support/problems.hpp"
#include "verify/measure.hpp"

namespace qattn::test {
namespace {

using verify::HostProblem;
using verify::Result;

// Quiet NaNs with payloads; arithmetic yields the default NaN or passes on a NaN of its inputs.
constexpr std::uint32_t kFill = 0x7FC0DEADU;
constexpr std::uint32_t kBorderFill = 0x7FC0BEEFU;

// docs/numerics.md: ||error|| of a row over max_j ||v_j - out||, for any input; and what float32
// adds, over max_j ||v_j||.
constexpr double kProvenHigh = 1e-3;
constexpr double kProvenFast = 6.6e-2;
constexpr double kProvenFastOnCuda = 0.1;
constexpr double kFloatRounding = 4e-6;

float from_bits(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void expect_written(const std::vector<float>& values, const char* name) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_unwritten(values[i])) {
      ADD_FAILURE() << name << "[" << i << "] of " << values.size() << " was not written";
      return;
    }
  }
}

}  // namespace

std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

bool is_unwritten(float value) { return bits_of(value) == kFill; }

BorderedFloats::BorderedFloats(const Device& device, std::int64_t size)
    : size_(size), memory_(device, static_cast<std::size_t>(size + 2 * kBorder)) {
  std::vector<float> fill(memory_.size(), from_bits(kFill));
  for (std::int64_t i = 0; i < kBorder; ++i) {
    fill[static_cast<std::size_t>(i)] = from_bits(kBorderFill);
    fill[fill.size() - 1 - static_cast<std::size_t>(i)] = from_bits(kBorderFill);
  }
  memory_.copy_from(fill.data());
}

std::vector<float> BorderedFloats::take(const char* name) {
  std::vector<float> all(memory_.size());
  memory_.copy_to(all.data());
  for (std::int64_t i = 0; i < kBorder; ++i) {
    const std::int64_t after = kBorder + size_ + i;
    EXPECT_EQ(bits_of(all[static_cast<std::size_t>(kBorder - 1 - i)]), kBorderFill)
        << "written " << i + 1 << " floats before " << name;
    EXPECT_EQ(bits_of(all[static_cast<std::size_t>(after)]), kBorderFill)
        << "written " << i << " floats after the end of " << name;
    if (testing::Test::HasFailure()) break;
  }
  return {all.begin() + kBorder, all.begin() + kBorder + size_};
}

Result run_guarded(const KernelCase& kernel, const HostProblem& problem,
                   const RunSettings& settings) {
  const DeviceInputs inputs(kernel.device, problem);
  BorderedFloats out(kernel.device, problem.out_size());
  BorderedFloats lse(kernel.device, problem.lse_size());
  Options options = problem.options(settings.precision, kernel.name);
  options.threads = settings.threads;
  options.executor = settings.executor;
  options.lse = settings.lse ? lse.data() : nullptr;
  const CallWatch watch;
  forward(kernel.device, inputs.q(), inputs.k(), inputs.v(),
          OutputTensor(out.data(), problem.out_shape()), options);
  const bool counted = kernel.is_cpu_tier() && problem.out_size() > 0;
  EXPECT_EQ(watch.ran(), counted ? kernel.name : "") << "another kernel ran than the forced one";

  Result result;
  result.out = out.take("out");
  result.lse = lse.take("lse");
  expect_written(result.out, "out");
  if (settings.lse) expect_written(result.lse, "lse");
  return result;
}

void expect_close(const KernelCase& kernel, const HostProblem& problem, const Result& got,
                  const Result& expected, Precision precision) {
  // Rounding the reference's float64 result to float32 costs 2^-24 of every entry.
  constexpr double kReferenceBound = 1e-6;
  const double bound = kernel.is_reference() ? kReferenceBound : verify::error_bound(precision);
  const double lse_bound = kernel.is_reference() ? kReferenceBound : verify::lse_bound(precision);
  const verify::Measure measure = verify::measure(problem, got, expected);
  const std::string where = kernel.name + " " + describe(problem, precision) + "\n" + reproduce();
  EXPECT_EQ(measure.fault, "") << where;
  EXPECT_LE(measure.relative, bound) << where;
  EXPECT_LE(measure.row, bound) << where;
  EXPECT_LE(measure.lse, lse_bound) << where;
}

void expect_oracle(const KernelCase& kernel, const HostProblem& problem) {
  const Result expected = oracle(problem);
  for (const Precision precision : {Precision::high, Precision::fast}) {
    SCOPED_TRACE(describe(problem, precision));
    RunSettings settings;
    settings.precision = precision;
    expect_close(kernel, problem, run_guarded(kernel, problem, settings), expected, precision);
  }
}

void expect_within_proof(const KernelCase& kernel, const HostProblem& problem, const Result& got,
                         Precision precision) {
  const double bound = kernel.is_reference()          ? 0
                       : precision == Precision::high ? kProvenHigh
                       : kernel.on_cpu()              ? kProvenFast
                                                      : kProvenFastOnCuda;
  const Result expected = oracle(problem);
  const std::vector<ValueSpread> spreads = value_spreads(problem);
  const auto head_dim = static_cast<std::size_t>(problem.dimensions.head_dim);
  for (std::size_t row = 0; row < spreads.size(); ++row) {
    double squares = 0;
    for (std::size_t x = row * head_dim; x < (row + 1) * head_dim; ++x) {
      squares += std::pow(static_cast<double>(got.out[x]) - expected.out[x], 2);
    }
    ASSERT_LE(std::sqrt(squares),
              bound * spreads[row].spread + kFloatRounding * spreads[row].largest)
        << "row " << row << " of " << kernel.name << " " << describe(problem, precision) << "\n"
        << reproduce();
  }
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected,
                      const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (bits_of(got[i]) == bits_of(expected[i])) continue;
    ADD_FAILURE() << what << "[" << i << "] is " << got[i] << " (0x" << std::hex << bits_of(got[i])
                  << "), expected " << expected[i] << " (0x" << bits_of(expected[i]) << ")\n"
                  << reproduce();
    return;
  }
}

void expect_same_bits(const Result& got, const Result& expected) {
  expect_same_bits(got.out, expected.out, "out");
  expect_same_bits(got.lse, expected.lse, "lse");
}

}  // namespace qattn::test
