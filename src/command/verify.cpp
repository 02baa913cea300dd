#include <cstdio>

#include "command/command.hpp"
#include "command/devices.hpp"
#include "command/input_error.hpp"
#include "command/json.hpp"
#include "command/progress.hpp"
#include "verify/cases.hpp"
#include "verify/float_attention.hpp"
#include "verify/measure.hpp"

namespace qattn::command {
namespace {

// A kernel on a device.
struct Target {
  Device device;
  KernelStatus kernel;
  int passed = 0;
  int failed = 0;
};

// Outcome of one case on one target.
struct Outcome {
  bool pass = false;
  verify::Measure measure;
  std::string error;  // what forward() threw
};

std::string label(const Target& target) {
  const bool first = target.device.ordinal() == 0;
  return target.kernel.name + (first ? "" : "@" + target.device.name());
}

const char* name_of(Precision precision) { return precision == Precision::high ? "high" : "fast"; }

// Usable kernels of all devices; with `forced` that one, the reference too.
std::vector<Target> find_targets(const std::string& forced, std::vector<KernelStatus>* unusable) {
  std::vector<Target> targets;
  std::string known;
  std::vector<Device> devices = all_devices();
  if (devices.size() == 1)
    devices.push_back(Device::cuda());  // to say why its kernels are unusable
  for (const Device& device : devices) {
    for (const KernelStatus& kernel : tried_kernels(device)) {
      known += (known.empty() ? "" : ", ") + kernel.name;
      if (forced.empty() ? is_reference(kernel) : kernel.name != forced) continue;
      if (kernel.usable) {
        targets.push_back({device, kernel});
      } else {
        unusable->push_back(kernel);
      }
    }
  }
  if (forced.empty() || !targets.empty()) return targets;
  if (!unusable->empty()) {
    throw InputError("--kernel: " + forced + " is not usable here: " + unusable->front().reason);
  }
  throw InputError("--kernel: there is no '" + forced + "' (allowed: " + known + ")");
}

Outcome check(const verify::HostProblem& problem, const verify::Result& reference,
              const Target& target, Precision precision) {
  Outcome outcome;
  try {
    const verify::Result result =
        verify::run(problem, target.device, precision, target.kernel.name);
    outcome.measure = verify::measure(problem, result, reference);
    outcome.pass = verify::passes(outcome.measure, precision);
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  return outcome;
}

std::string text_line(const Target& target, const std::string& name, Precision precision,
                      const Outcome& outcome) {
  char text[256];
  std::snprintf(text, sizeof text, "%s %-16s %s %-34s", outcome.pass ? "PASS" : "FAIL",
                label(target).c_str(), name_of(precision), name.c_str());
  if (!outcome.error.empty()) return text + (" " + outcome.error);
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, " relative %.1e row %.1e lse %.1e",
                outcome.measure.relative, outcome.measure.row, outcome.measure.lse);
  const std::string& fault = outcome.measure.fault;
  return text + std::string(numbers) + (fault.empty() ? "" : " " + fault);
}

void append(Json& json, const Target& target, const std::string& name, Precision precision,
            const Outcome& outcome) {
  json.begin_object().member("kernel", target.kernel.name).member("device", target.device.name());
  json.member("precision", name_of(precision)).member("case", name).member("pass", outcome.pass);
  if (outcome.error.empty()) {
    json.member("relative", outcome.measure.relative).member("row", outcome.measure.row);
    json.member("lse", outcome.measure.lse).member("fault", outcome.measure.fault);
  } else {
    json.member("error", outcome.error);
  }
  json.end_object();
}

// The reference is the yardstick of all others; its own is the same formula on float tensors.
verify::Result yardstick(const verify::HostProblem& problem, bool of_reference) {
  return of_reference ? verify::float_attention(verify::dequantise(problem))
                      : verify::run_reference(problem);
}

int summarise(const std::vector<Target>& targets, const std::vector<KernelStatus>& unusable,
              bool quick, bool json, Progress& progress) {
  int passed = 0;
  int failed = 0;
  for (const Target& target : targets) {
    passed += target.passed;
    failed += target.failed;
    if (!json) {
      progress.print(label(target) + ": " + std::to_string(target.passed) + " passed, " +
                     std::to_string(target.failed) + " failed");
    }
  }
  if (!json) {
    for (const KernelStatus& kernel : unusable) {
      progress.print(kernel.name + ": not usable here: " + kernel.reason);
    }
    progress.print((failed == 0 && passed > 0 ? "PASS" : "FAIL") + std::string(": ") +
                   std::to_string(passed) + " passed, " + std::to_string(failed) + " failed" +
                   (quick ? " (quick: without the cases of 131072 keys)" : ""));
  }
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace

int verify(const VerifyOptions& options) {
  std::vector<KernelStatus> unusable;
  std::vector<Target> targets = find_targets(options.kernel, &unusable);
  const bool of_reference = targets.size() == 1 && is_reference(targets.front().kernel);
  const std::vector<verify::Case> cases = verify::built_in_cases(options.quick);
  Json json;
  json.begin_object().key("results").begin_array();
  Progress progress("qattn verify", static_cast<int>(cases.size()));
  for (const verify::Case& built_in : cases) {
    progress.step(built_in.name);
    const verify::HostProblem problem = built_in.make();
    const verify::Result reference = yardstick(problem, of_reference);
    for (Target& target : targets) {
      for (const Precision precision : {Precision::high, Precision::fast}) {
        const Outcome outcome = check(problem, reference, target, precision);
        ++(outcome.pass ? target.passed : target.failed);
        if (options.json) {
          append(json, target, built_in.name, precision, outcome);
        } else {
          progress.print(text_line(target, built_in.name, precision, outcome));
        }
      }
    }
  }
  const int code = summarise(targets, unusable, options.quick, options.json, progress);
  if (options.json) {
    json.end_array().key("unusable").begin_array();
    for (const KernelStatus& kernel : unusable) {
      json.begin_object().member("kernel", kernel.name).member("reason", kernel.reason);
      json.end_object();
    }
    progress.print(json.end_array().member("pass", code == 0).end_object().text());
  }
  return code;
}

}  // namespace qattn::command
