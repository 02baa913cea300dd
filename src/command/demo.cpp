#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "command/command.hpp"
#include "command/devices.hpp"
#include "command/input_error.hpp"
#include "command/npy.hpp"
#include "command/progress.hpp"
#include "command/timing.hpp"
#include "command/usage.hpp"
#include "verify/measure.hpp"

namespace qattn::command {
namespace {

// A layer with its yardsticks.
struct Layer {
  std::string name;
  LoadedProblem loaded;
  verify::Result dequantised;
  verify::Result unquantised;
};

// Names NAME of the files NAME_q.npy, in order.
std::vector<std::string> layer_names(const std::string& directory) {
  const std::string suffix = "_q.npy";
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string file = entry.path().filename().string();
    if (file.size() > suffix.size() &&
        file.compare(file.size() - suffix.size(), suffix.size(), suffix) == 0) {
      names.push_back(file.substr(0, file.size() - suffix.size()));
    }
  }
  if (error) {
    throw InputError(directory + ": cannot be listed: " + error.message() +
                     " (--data names the folder)");
  }
  if (names.empty()) throw InputError(directory + ": holds no tensors (files like layer00_q.npy)");
  std::sort(names.begin(), names.end());
  return names;
}

Layer load_layer(const std::string& directory, const std::string& name) {
  const std::string path = (std::filesystem::path(directory) / name).string();
  const TensorFiles files = {path + "_q.npy", path + "_k.npy", path + "_v.npy", {}, {}, {}};
  Layer layer;
  layer.name = name;
  layer.loaded = load_tensors(files, Mask::causal(), std::nullopt);
  if (!layer.loaded.original) {
    throw InputError(files.q + ": is int8 (allowed: float16 or float32 for the demo)");
  }
  try {
    layer.dequantised = verify::run_reference(layer.loaded.problem);
  } catch (const Error& error) {
    throw InputError(in_files(error.what(), files));
  }
  layer.unquantised = verify::float_attention(*layer.loaded.original);
  return layer;
}

// Why none of the kernels is usable: one reason if they share it.
std::string reasons_of(const std::vector<KernelStatus>& kernels) {
  const bool same = std::all_of(kernels.begin(), kernels.end(), [&](const KernelStatus& kernel) {
    return kernel.reason == kernels.front().reason;
  });
  if (same && !kernels.empty()) return kernels.front().reason;
  std::string reasons;
  for (const KernelStatus& kernel : kernels) {
    reasons += (reasons.empty() ? "" : "; ") + kernel.name + ": " + kernel.reason;
  }
  return reasons;
}

// At least one; throws where there is none.
std::vector<std::string> usable_kernels(const Device& device, bool best) {
  std::vector<std::string> names;
  std::vector<KernelStatus> unusable;
  for (const KernelStatus& kernel : tried_kernels(device)) {
    if (is_reference(kernel)) continue;
    if (kernel.usable) {
      names.push_back(kernel.name);
    } else {
      unusable.push_back(kernel);
    }
  }
  if (names.empty()) {
    throw InputError("--device: no kernel is usable on " + device.name() + ": " +
                     reasons_of(unusable));
  }
  if (best && names.size() > 1) names.resize(1);
  return names;
}

std::string row(const std::string& kernel, const std::string& precision, const std::string& layer,
                const std::string& shape, const std::string& time, const std::string& dequantised,
                const std::string& unquantised) {
  char text[256];
  std::snprintf(text, sizeof text, "%-16s  %-9s  %-8s  %-22s  %9s  %13s  %13s", kernel.c_str(),
                precision.c_str(), layer.c_str(), shape.c_str(), time.c_str(), dequantised.c_str(),
                unquantised.c_str());
  return text;
}

std::string exponent_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", value);
  return text;
}

std::string measured_row(const Layer& layer, const Device& device, const std::string& kernel,
                         Precision precision, int repeat) {
  const verify::HostProblem& problem = layer.loaded.problem;
  const verify::Dimensions& d = problem.dimensions;
  verify::PlacedProblem placed(problem, device);
  const double seconds = median_seconds(placed, precision, kernel, 0, repeat);
  const std::vector<float> out = placed.result().out;
  const std::string shape = "(" + std::to_string(d.batch) + ", " + std::to_string(d.seq_q) + ", " +
                            std::to_string(d.heads_q) + "/" + std::to_string(d.heads_kv) + ", " +
                            std::to_string(d.head_dim) + ")";
  return row(kernel, precision == Precision::high ? "high" : "fast", layer.name, shape,
             time_text(seconds),
             exponent_text(verify::relative_error(d, out, layer.dequantised.out)),
             exponent_text(verify::relative_error(d, out, layer.unquantised.out)));
}

}  // namespace

int demo(const DemoOptions& options) {
  const Device device = pick_device(options.device, {});
  const std::vector<std::string> names = layer_names(options.data);
  const std::vector<std::string> kernel_names = usable_kernels(device, options.best);
  const std::size_t steps = names.size() * (1 + 2 * kernel_names.size());
  Progress progress("qattn demo", static_cast<int>(steps));

  std::vector<Layer> layers;
  for (const std::string& name : names) {
    progress.step("float64 attention over " + name);
    layers.push_back(load_layer(options.data, name));
  }
  progress.print(
      "Causal attention over the tensors in " + options.data + " on " + device.name() +
      ".\nErrors are relative (Frobenius norm, the worst head) to attention in float64, on the"
      " int8\ntensors dequantised: the kernel's own; on the tensors before quantising: that of"
      " int8 included.");
  progress.print(row("kernel", "precision", "tensors", "shape (B, S, Hq/Hkv, D)", "time",
                     "vs dequantised", "vs unquantised"));
  for (const std::string& kernel : kernel_names) {
    for (const Precision precision : {Precision::high, Precision::fast}) {
      for (const Layer& layer : layers) {
        progress.step(kernel + " on " + layer.name);
        progress.print(measured_row(layer, device, kernel, precision, options.repeat));
      }
    }
  }
  return 0;
}

}  // namespace qattn::command
