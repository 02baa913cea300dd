// The accuracy contract on Q, K and V of a real language model (tests/data), quantised per head.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "command/tensors.hpp"
#include "support/run.hpp"

namespace qattn::test {
namespace {

// A layer with its reference.
struct Layer {
  verify::HostProblem problem;
  verify::Result reference;
};

const std::string kLayers[] = {"layer00", "layer18", "layer29"};

const Layer& layer(const std::string& name) {
  static std::map<std::string, Layer> layers;
  const auto found = layers.find(name);
  if (found != layers.end()) return found->second;
  const std::string path = std::string(QATTN_TEST_DATA) + "/" + name;
  Layer loaded;
  loaded.problem =
      command::load_tensors({path + "_q.npy", path + "_k.npy", path + "_v.npy", {}, {}, {}},
                            Mask::causal(), std::nullopt)
          .problem;
  loaded.reference = verify::run_reference(loaded.problem);
  return layers.emplace(name, std::move(loaded)).first->second;
}

class RealTensors : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, RealTensors, testing::ValuesIn(all_kernels()), test_name);

TEST_P(RealTensors, WithinTheContract) {
  if (kernel().is_reference()) GTEST_SKIP() << "the reference is what the others are compared with";
  for (const std::string& name : kLayers) {
    const Layer& data = layer(name);
    for (const Precision precision : {Precision::high, Precision::fast}) {
      SCOPED_TRACE(name);
      RunSettings settings;
      settings.precision = precision;
      expect_close(kernel(), data.problem, run_guarded(kernel(), data.problem, settings),
                   data.reference, precision);
    }
  }
}

}  // namespace
}  // namespace qattn::test
