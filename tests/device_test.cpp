// Devices as a program without a GPU sees them; a GPU, if there is one, is hidden in child
// processes.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/call.hpp"
#include "support/child.hpp"
#include "support/kernel_param.hpp"
#include "support/oracle.hpp"
#include "verify/measure.hpp"

namespace qattn::test {
namespace {

bool cuda_usable() {
  const std::vector<KernelCase>& all = all_kernels();
  return std::any_of(all.begin(), all.end(),
                     [](const KernelCase& kernel) { return kernel.usable && !kernel.on_cpu(); });
}

TEST(Devices, Names) {
  EXPECT_EQ(Device::cpu().name(), "cpu");
  EXPECT_EQ(Device::cuda().name(), "cuda:0");
  EXPECT_EQ(Device::cuda(3).name(), "cuda:3");
  EXPECT_EQ(Device::cuda(1), Device::cuda(1, &errno)) << "the stream does not count";
  EXPECT_NE(Device::cuda(1), Device::cuda(0));
  EXPECT_NE(Device::cuda(0), Device::cpu());
}

TEST(Devices, BestIsAUsableGpuElseTheCpu) {
  EXPECT_EQ(Device::best().kind(), cuda_usable() ? Device::Kind::cuda : Device::Kind::cpu);
}

TEST(Devices, TheSameProgramRunsOnTheBestDevice) {
  const verify::HostProblem problem =
      verify::random_problem({2, 72, 72, 4, 4, 32}, Mask::causal(), 1);
  const verify::Result expected = oracle(problem);
  const Device device = Device::best();
  const Buffer<std::int8_t> q(device, problem.q.data(), problem.q.size());
  const Buffer<std::int8_t> k(device, problem.k.data(), problem.k.size());
  const Buffer<std::int8_t> v(device, problem.v.data(), problem.v.size());
  const Buffer<float> q_scale(device, problem.q_scale.data(), 4);
  const Buffer<float> k_scale(device, problem.k_scale.data(), 4);
  const Buffer<float> v_scale(device, problem.v_scale.data(), 4);
  Buffer<float> out(device, expected.out.size());
  forward(device, q.data(), k.data(), v.data(), q_scale.data(), k_scale.data(), v_scale.data(),
          out.data(), 2, 72, 4, 32);
  verify::Result got = expected;
  out.copy_to(got.out.data());
  const verify::Measure measure = verify::measure(problem, got, expected);
  EXPECT_EQ(measure.fault, "");
  EXPECT_LE(measure.relative, verify::error_bound(Precision::high));
  EXPECT_EQ(Device::for_data(out.data()), device);
}

TEST(Devices, HostMemoryBelongsToTheCpu) {
  const int on_stack = 0;
  const std::vector<int> on_heap(1);
  EXPECT_EQ(Device::for_data(&on_stack), Device::cpu());
  EXPECT_EQ(Device::for_data(on_heap.data()), Device::cpu());
  EXPECT_EQ(Device::for_data(nullptr), Device::cpu());
  EXPECT_EQ(Device::for_data("a literal"), Device::cpu());
}

TEST(Devices, BuffersHoldWhatTheyAreGiven) {
  const std::vector<int> values = {1, -2, 3};
  Buffer<int> buffer(Device::cpu(), values.data(), values.size());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0U);
  Buffer<int> moved = std::move(buffer);
  std::vector<int> back(3);
  moved.copy_to(back.data());
  EXPECT_EQ(back, values);
  EXPECT_EQ(Buffer<int>(Device::cpu(), 0).size(), 0U);
  EXPECT_EQ(Buffer<int>().data(), nullptr);
  try {
    const Buffer<double> too_large(Device::cpu(), SIZE_MAX / 4);
    FAIL() << "allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  }
}

// The message with which `call` is refused.
template <typename Call>
std::string refusal(ErrorCode code, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "not refused";
}

TEST(Devices, BuffersRefuseHostPointersThatAreNull) {
  float* const null = nullptr;
  Buffer<float> buffer(Device::cpu(), 3);
  const auto expect_named = [](const std::string& message) {
    EXPECT_EQ(message.rfind("host is null", 0), 0U) << message;
    EXPECT_NE(message.find("12 bytes"), std::string::npos) << message;
    EXPECT_NE(message.find("allowed"), std::string::npos) << message;
  };
  expect_named(refusal(ErrorCode::invalid_argument,
                       [&] { const Buffer<float> copied(Device::cpu(), null, 3); }));
  expect_named(refusal(ErrorCode::invalid_argument, [&] { buffer.copy_from(null); }));
  expect_named(refusal(ErrorCode::invalid_argument, [&] { buffer.copy_to(null); }));
  EXPECT_EQ(Buffer<float>(Device::cpu(), null, 0).data(), nullptr);
  Buffer<float>().copy_from(null);
  Buffer<float>().copy_to(null);
}

TEST(Devices, BuffersSayWhatWasAskedForWhenItIsTooMuch) {
  const auto too_large = [](std::size_t size) {
    return refusal(ErrorCode::out_of_memory,
                   [&] { const Buffer<double> buffer(Device::cpu(), size); });
  };
  const std::string overflow = too_large(SIZE_MAX / 4);
  EXPECT_NE(overflow.find(std::to_string(SIZE_MAX / 4) + " elements of 8 bytes"), std::string::npos)
      << overflow;
  const std::string large = too_large(SIZE_MAX / 9);
  EXPECT_NE(large.find(std::to_string(SIZE_MAX / 9 * 8) + " bytes"), std::string::npos) << large;
}

// A device that is not there: an error with the reason, and nothing written.
int use_absent_device(const Device& device) {
  Call call;
  call.device = device;
  try {
    forward(device, call.q, call.k, call.v, call.out, call.options);
    std::printf("ran\n");
    return 1;
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
    const Explanation explanation = explain(device, call.q, call.k, call.v, call.out, call.options);
    if (explanation.error != error.what()) {
      std::printf("explain() says: %s\n", explanation.error.c_str());
      return 2;
    }
    for (const KernelStatus& status : explanation.passed_over) {
      // Not which features the device lacks, but why it cannot be used.
      const bool of_device = status.name.rfind("cuda/", 0) == 0;
      if (of_device && explanation.error.find(status.reason) == std::string::npos) return 5;
    }
    for (const float x : call.out_memory.take("out")) {
      if (!is_unwritten(x)) return 3;
    }
    return error.code() == ErrorCode::device_unavailable ? 0 : 4;
  }
}

TEST(Devices, AbsentOrdinalsAreUnavailable) {
  for (const int ordinal : {99, -1}) {
    EXPECT_EQ(use_absent_device(Device::cuda(ordinal)), 0) << ordinal;
    EXPECT_THROW(Buffer<float>(Device::cuda(ordinal), 16), Error);
    for (const KernelStatus& status : kernels(Device::cuda(ordinal))) {
      EXPECT_FALSE(status.usable);
      EXPECT_NE(status.reason, "");
    }
  }
}

int without_gpu() {
  if (Device::best() != Device::cpu()) return 10;
  const MachineInfo machine = machine_info();
  if (machine.cuda == "available" || machine.cuda.empty() || !machine.cuda_devices.empty()) {
    return 11;
  }
  std::printf("%s\n", machine.cuda.c_str());
  for (const KernelStatus& status : kernels(Device::cuda())) {
    if (status.usable || status.reason.empty()) return 12;
  }
  Call call;
  forward(Device::best(), call.q, call.k, call.v, call.out, call.options);
  return use_absent_device(Device::cuda());
}
const ChildScenario no_gpu("without_gpu", without_gpu);

TEST(Devices, WithoutAGpuTheCpuServesAndTheReasonIsGiven) {
  for (const char* visible : {"", "-1"}) {
    const ChildResult child = run_child("without_gpu", {{"CUDA_VISIBLE_DEVICES", visible}});
    EXPECT_EQ(child.exit_code, 0) << child.output;
    EXPECT_NE(child.output, "");
  }
}

// Device files and libraries of the NVIDIA driver that this process holds.
std::string nvidia_traces() {
  std::string traces;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.find("/dev/nvidia") == 0) traces += target + "\n";
  }
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find("/dev/nvidia") != std::string::npos) traces += line + "\n";
  }
  return traces;
}

int leaves_cuda_alone() {
  Call call;
  forward(Device::cpu(), call.q, call.k, call.v, call.out, call.options);
  if (Device::for_data(call.out.data) != Device::cpu()) return 20;
  kernels(Device::cpu());
  explain(Device::cpu(), call.q, call.k, call.v, call.out, call.options);
  const Buffer<float> buffer(Device::cpu(), 100);
  const std::string traces = nvidia_traces();
  std::printf("%s", traces.c_str());
  return traces.empty() ? 0 : 21;
}
const ChildScenario cuda_alone("leaves_cuda_alone", leaves_cuda_alone);

TEST(Devices, WorkOnTheCpuDoesNotInitialiseCuda) {
  const ChildResult child = run_child("leaves_cuda_alone");
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

TEST(Devices, MachineInfoSaysWhatIsThere) {
  const MachineInfo machine = machine_info();
  EXPECT_NE(machine.cpu, "");
  EXPECT_GT(machine.cpu_threads, 0);
  EXPECT_NE(machine.cuda, "");
  EXPECT_EQ(machine.cuda == "available", !machine.cuda_devices.empty());
#if defined(__x86_64__)
  EXPECT_NE(std::count(machine.cpu_features.begin(), machine.cpu_features.end(), "sse2"), 0);
#endif
}

TEST(Devices, VersionOfHeadersAndLibraryAgree) {
  const std::string expected = std::to_string(QATTN_VERSION_MAJOR) + "." +
                               std::to_string(QATTN_VERSION_MINOR) + "." +
                               std::to_string(QATTN_VERSION_PATCH);
  EXPECT_EQ(version(), expected);
}

}  // namespace
}  // namespace qattn::test
