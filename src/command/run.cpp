#include <cstdio>
#include <filesystem>
#include <optional>

#include "command/command.hpp"
#include "command/devices.hpp"
#include "command/input_error.hpp"
#include "command/json.hpp"
#include "command/npy.hpp"
#include "command/progress.hpp"
#include "command/timing.hpp"
#include "command/usage.hpp"
#include "verify/measure.hpp"

namespace qattn::command {
namespace {

// What a run found out.
struct Report {
  std::string kernel;
  Device device = Device::cpu();
  double seconds = 0;
  std::optional<verify::Measure> dequantised;  // --check
  std::optional<double> unquantised;           // --check of float tensors
};

// Whether both name one file, which need not exist yet.
bool same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code error;  // what cannot be found out will fail when it is opened
  if (fs::equivalent(a, b, error)) return true;  // hard links too
  return fs::weakly_canonical(fs::absolute(a, error), error) ==
         fs::weakly_canonical(fs::absolute(b, error), error);
}

// A mistyped --out must not destroy the tensors that it was made from.
void refuse_overwriting(const RunOptions& options) {
  if (!options.lse.empty() && !options.out.empty() && same_file(options.lse, options.out)) {
    throw InputError(options.lse + ": is --out and --lse at once (allowed: two files)");
  }
  const TensorFiles& files = options.files;
  for (const std::string& written : {options.out, options.lse}) {
    for (const std::string& read :
         {files.q, files.k, files.v, files.q_scale, files.k_scale, files.v_scale}) {
      std::error_code missing;  // a file that does not exist is no input
      if (!written.empty() && std::filesystem::equivalent(written, read, missing)) {
        throw InputError(written + ": is an input, it will not be overwritten");
      }
    }
  }
}

// What forward() would choose; throws what it would throw.
std::string chosen_kernel(const verify::HostProblem& problem, const Device& device,
                          const Options& options) {
  const Explanation explanation =
      explain(device, problem.q_view(), problem.k_view(), problem.v_view(),
              OutputTensor(static_cast<float*>(nullptr), problem.out_shape()), options);
  if (!explanation.error.empty()) throw InputError(in_flags(explanation.error));
  return explanation.kernel;
}

std::vector<std::int64_t> file_shape(const LoadedProblem& loaded, std::vector<std::int64_t> shape) {
  if (loaded.rank == 3) shape.erase(shape.begin());
  return shape;
}

void write_results(const RunOptions& options, const LoadedProblem& loaded,
                   const verify::Result& result) {
  const verify::Dimensions& d = loaded.problem.dimensions;
  if (!options.out.empty()) {
    write_npy(options.out, file_shape(loaded, {d.batch, d.seq_q, d.heads_q, d.head_dim}),
              result.out);
  }
  if (!options.lse.empty()) {
    write_npy(options.lse, file_shape(loaded, {d.batch, d.heads_q, d.seq_q}), result.lse);
  }
}

std::string json_text(const RunOptions& options, const LoadedProblem& loaded,
                      const Report& report) {
  const verify::Dimensions& d = loaded.problem.dimensions;
  Json json;
  json.begin_object().member("kernel", report.kernel).member("device", report.device.name());
  json.member("batch", d.batch).member("seq_q", d.seq_q).member("seq_k", d.seq_k);
  json.member("heads_q", d.heads_q).member("heads_kv", d.heads_kv);
  json.member("head_dim", d.head_dim).member("mask", options.mask);
  json.member("precision", options.precision).member("seconds", report.seconds);
  json.member("repeat", options.repeat);
  if (report.dequantised) {
    json.key("error_dequantised").begin_object();
    json.member("relative", report.dequantised->relative).member("row", report.dequantised->row);
    json.member("lse", report.dequantised->lse).member("fault", report.dequantised->fault);
    json.end_object();
  }
  if (report.unquantised) {
    json.key("error_unquantised").begin_object();
    json.member("relative", *report.unquantised).end_object();
  }
  return json.end_object().text();
}

void print(const RunOptions& options, const LoadedProblem& loaded, const Report& report) {
  const verify::Dimensions& d = loaded.problem.dimensions;
  std::printf("kernel     %s\n", report.kernel.c_str());
  std::printf("device     %s\n", report.device.name().c_str());
  std::printf("shape      q %s, k and v %s, %s\n",
              shape_text({d.batch, d.seq_q, d.heads_q, d.head_dim}).c_str(),
              shape_text({d.batch, d.seq_k, d.heads_kv, d.head_dim}).c_str(), options.mask.c_str());
  std::printf("precision  %s\n", options.precision.c_str());
  std::printf("time       %s (median of %d)\n", time_text(report.seconds).c_str(), options.repeat);
  if (report.dequantised) {
    const verify::Measure& m = *report.dequantised;
    std::printf(
        "error      %.1e against float64 on the dequantised tensors"
        " (worst row %.1e, lse %.1e)\n",
        m.relative, m.row, m.lse);
    if (!m.fault.empty()) std::printf("FAULT      %s\n", m.fault.c_str());
  }
  if (report.unquantised) {
    std::printf("error      %.1e against float64 on the unquantised tensors\n",
                *report.unquantised);
  }
}

}  // namespace

int run(const RunOptions& options) {
  refuse_overwriting(options);
  Progress progress("qattn run", options.check ? 4 : 2);
  progress.step("reading");
  const Mask mask = options.mask == "full" ? Mask::full() : Mask::causal();
  const Precision precision = options.precision == "fast" ? Precision::fast : Precision::high;
  const LoadedProblem loaded = load_tensors(options.files, mask, options.softmax_scale);
  const verify::HostProblem& problem = loaded.problem;

  Report report;
  report.device = pick_device(options.device, options.kernel);
  report.kernel = chosen_kernel(problem, report.device, problem.options(precision, options.kernel));
  progress.step("attention with " + report.kernel);
  verify::PlacedProblem placed(problem, report.device);
  report.seconds =
      median_seconds(placed, precision, options.kernel, options.threads, options.repeat);
  // Again: the OS may have refused what the first choice needed.
  report.kernel = chosen_kernel(problem, report.device, problem.options(precision, options.kernel));
  const verify::Result result = placed.result();
  write_results(options, loaded, result);
  if (options.check) {
    progress.step("float64 on the dequantised tensors");
    const verify::Result reference = verify::run_reference(problem);
    report.dequantised = verify::measure(problem, result, reference);
    // Measures pass over entries on which kernel and reference agree that they are no numbers.
    if (report.dequantised->fault.empty()) {
      report.dequantised->fault = verify::first_not_finite(problem, result, reference);
    }
    progress.step("float64 on the unquantised tensors");
    if (loaded.original) {
      report.unquantised = verify::relative_error(problem.dimensions, result.out,
                                                  verify::float_attention(*loaded.original).out);
    }
  }
  if (options.json) {
    progress.print(json_text(options, loaded, report));
  } else {
    print(options, loaded, report);
  }
  return report.dequantised && !report.dequantised->fault.empty() ? 1 : 0;
}

}  // namespace qattn::command
