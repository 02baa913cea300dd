// The C API computes what the C++ API computes, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "problem.hpp"

namespace qattn::test {
namespace {

std::string message() { return qattn_last_error_message(); }

// An executor that runs tasks backwards and counts them.
struct Counter {
  std::int64_t tasks = 0;
  static void run(void* context, std::int64_t tasks, void (*task)(void*, std::int64_t),
                  void* argument) {
    static_cast<Counter*>(context)->tasks += tasks;
    for (std::int64_t i = tasks - 1; i >= 0; --i) task(argument, i);
  }
};

TEST(Capi, VersionIsThatOfTheLibrary) { EXPECT_STREQ(qattn_version(), version()); }

TEST(Capi, ForwardGivesTheBitsOfCppOnEveryKernel) {
  CapiProblem problem(2, 7, 19, 6, 2, 40);
  for (const KernelStatus& kernel : kernels(Device::cpu())) {
    if (!kernel.usable) continue;
    for (const std::int32_t mask : {QATTN_MASK_CAUSAL, QATTN_MASK_FULL}) {
      for (const std::int32_t precision : {QATTN_PRECISION_HIGH, QATTN_PRECISION_FAST}) {
        SCOPED_TRACE(kernel.name + " mask " + std::to_string(mask));
        std::vector<float> out(problem.out_size());
        std::vector<float> lse(problem.lse_size());
        problem.options.mask = mask;
        problem.options.precision = precision;
        problem.options.kernel = kernel.name.c_str();
        problem.options.lse = lse.data();
        problem.options.has_softmax_scale = 1;
        problem.options.softmax_scale = 0.0625F;
        problem.options.threads = 1;
        ASSERT_EQ(problem.run(out.data()), QATTN_OK) << message();

        std::vector<float> expected(problem.out_size());
        std::vector<float> expected_lse(problem.lse_size());
        Options options;
        options.mask = mask == QATTN_MASK_FULL ? Mask::full() : Mask::causal();
        options.precision = static_cast<Precision>(precision);
        options.kernel = kernel.name;
        options.lse = expected_lse.data();
        options.softmax_scale = 0.0625F;
        forward(Device::cpu(), problem.cpp_q(), problem.cpp_k(), problem.cpp_v(),
                OutputTensor{expected.data(), problem.q_shape}, options);
        EXPECT_EQ(bits(out), bits(expected));
        EXPECT_EQ(bits(lse), bits(expected_lse));
      }
    }
  }
}

TEST(Capi, SoftmaxScaleCountsOnlyWithItsFlag) {
  CapiProblem problem(1, 3, 8, 1, 1, 32);
  std::vector<float> expected(problem.out_size());
  ASSERT_EQ(problem.run(expected.data()), QATTN_OK);
  std::vector<float> out(problem.out_size());
  problem.options.softmax_scale = 0.5F;
  ASSERT_EQ(problem.run(out.data()), QATTN_OK);
  EXPECT_EQ(bits(out), bits(expected));
  problem.options.has_softmax_scale = 1;
  ASSERT_EQ(problem.run(out.data()), QATTN_OK);
  EXPECT_NE(bits(out), bits(expected));
}

TEST(Capi, StridedViewsAndContiguousTensorsGiveTheSame) {
  CapiProblem problem(2, 4, 4, 3, 3, 8);
  std::vector<float> expected(problem.out_size());
  ASSERT_EQ(problem.run(expected.data()), QATTN_OK);
  // (batch, heads, seq, head_dim) in memory.
  std::vector<std::int8_t> q(problem.q.size());
  for (std::size_t i = 0; i < q.size(); ++i) {
    const std::size_t d = i % 8, h = i / 8 % 3, s = i / 24 % 4, b = i / 96;
    q[((b * 3 + h) * 4 + s) * 8 + d] = problem.q[i];
  }
  problem.c_q.data = q.data();
  problem.c_q.strides[1] = 8;
  problem.c_q.strides[2] = 32;
  std::vector<float> wide(2 * problem.out_size(), -1.0F);
  qattn_output out = problem.c_out(wide.data());
  for (std::int64_t& stride : out.strides) stride *= 2;
  ASSERT_EQ(qattn_forward(&problem.device, &problem.c_q, &problem.c_k, &problem.c_v, &out, nullptr),
            QATTN_OK)
      << message();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(wide[i / 8 * 16 + i % 8], expected[i]) << i;
    ASSERT_EQ(wide[i / 8 * 16 + 8 + i % 8], -1.0F) << "between rows, " << i;
  }
}

TEST(Capi, OutputsOf16Bits) {
  CapiProblem problem(1, 3, 8, 2, 2, 16);
  problem.options.kernel = "reference/float64";
  std::vector<float> expected(problem.out_size());
  ASSERT_EQ(problem.run(expected.data()), QATTN_OK) << message();
  std::vector<std::uint16_t> bits(problem.out_size());
  qattn_output out = problem.c_out(nullptr);
  out.data = bits.data();
  out.dtype = QATTN_BFLOAT16;
  ASSERT_EQ(qattn_forward(&problem.device, &problem.c_q, &problem.c_k, &problem.c_v, &out,
                          &problem.options),
            QATTN_OK)
      << message();
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const std::uint32_t upper = std::uint32_t{bits[i]} << 16U;
    float value = 0;
    std::memcpy(&value, &upper, sizeof value);
    ASSERT_NEAR(value, expected[i], std::fabs(expected[i]) * 0x1p-8F) << i;
  }
  problem.options.kernel = "cpu/scalar";
  EXPECT_EQ(qattn_forward(&problem.device, &problem.c_q, &problem.c_k, &problem.c_v, &out,
                          &problem.options),
            QATTN_KERNEL_UNUSABLE);
  EXPECT_NE(message().find("dtype bfloat16 of out"), std::string::npos) << message();
}

TEST(Capi, ContiguousForwardIsThePlainCase) {
  const CapiProblem problem(2, 9, 9, 3, 3, 24);
  for (const bool causal : {false, true}) {
    std::vector<float> out(problem.out_size());
    ASSERT_EQ(
        qattn_forward_contiguous(&problem.device, problem.q.data(), problem.k.data(),
                                 problem.v.data(), problem.q_scale.data(), problem.k_scale.data(),
                                 problem.v_scale.data(), out.data(), 2, 9, 3, 24, causal ? 1 : 0),
        QATTN_OK)
        << message();
    std::vector<float> expected(problem.out_size());
    forward(Device::cpu(), problem.q.data(), problem.k.data(), problem.v.data(),
            problem.q_scale.data(), problem.k_scale.data(), problem.v_scale.data(), expected.data(),
            2, 9, 3, 24, causal);
    EXPECT_EQ(bits(out), bits(expected));
  }
}

TEST(Capi, ExecutorRunsTheTasks) {
  CapiProblem problem(2, 30, 30, 4, 4, 16);
  std::vector<float> expected(problem.out_size());
  ASSERT_EQ(problem.run(expected.data()), QATTN_OK);
  Counter counter;
  problem.options.executor = &Counter::run;
  problem.options.executor_context = &counter;
  std::vector<float> out(problem.out_size());
  ASSERT_EQ(problem.run(out.data()), QATTN_OK) << message();
  EXPECT_GT(counter.tasks, 0);
  EXPECT_EQ(bits(out), bits(expected));
}

TEST(Capi, WorkspaceBytesAreThoseOfCpp) {
  CapiProblem problem(1, 64, 64, 2, 2, 64);
  const qattn_output out = problem.c_out(nullptr);
  std::size_t bytes = 12345;
  ASSERT_EQ(qattn_workspace_bytes(&problem.device, &problem.c_q, &problem.c_k, &problem.c_v, &out,
                                  nullptr, &bytes),
            QATTN_OK)
      << message();
  EXPECT_EQ(bytes, workspace_bytes(Device::cpu(), problem.cpp_q(), problem.cpp_k(), problem.cpp_v(),
                                   OutputTensor{nullptr, problem.q_shape}));
  EXPECT_EQ(qattn_workspace_bytes(&problem.device, &problem.c_q, &problem.c_k, &problem.c_v, &out,
                                  nullptr, nullptr),
            QATTN_INVALID_ARGUMENT);
}

TEST(Capi, QuantizeGivesTheBitsOfCpp) {
  const Shape shape{2, 5, 3, 12};
  std::vector<float> x(2 * 5 * 3 * 12);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.37F * static_cast<float>(i % 91) - 15.0F;
  std::vector<std::int8_t> out(x.size()), expected(x.size());
  std::vector<float> scale(3), expected_scale(3);
  qattn_device device;
  qattn_float_tensor input;
  qattn_quantized quantized;
  qattn_quantize_options options;
  Counter counter;
  ASSERT_EQ(qattn_device_cpu(&device, sizeof device), QATTN_OK);
  ASSERT_EQ(qattn_float_tensor_init(&input, sizeof input, x.data(), QATTN_FLOAT32, 2, 5, 3, 12),
            QATTN_OK);
  ASSERT_EQ(
      qattn_quantized_init(&quantized, sizeof quantized, out.data(), scale.data(), 2, 5, 3, 12),
      QATTN_OK);
  ASSERT_EQ(qattn_quantize_options_init(&options, sizeof options), QATTN_OK);
  options.executor = &Counter::run;
  options.executor_context = &counter;
  ASSERT_EQ(qattn_quantize(&device, &input, &quantized, &options), QATTN_OK) << message();
  EXPECT_GT(counter.tasks, 0);
  quantize(Device::cpu(), FloatTensor(x.data(), shape),
           QuantizedTensor(expected.data(), shape, expected_scale.data()));
  EXPECT_EQ(out, expected);
  EXPECT_EQ(bits(scale), bits(expected_scale));

  quantized.granularity = QATTN_PER_TOKEN;
  EXPECT_EQ(qattn_quantize(&device, &input, &quantized, nullptr), QATTN_UNSUPPORTED);
  EXPECT_NE(message().find("per_token"), std::string::npos) << message();
}

TEST(Capi, DevicesAndTheirMemory) {
  qattn_device device;
  ASSERT_EQ(qattn_device_cuda(&device, sizeof device, 3, &device), QATTN_OK);
  EXPECT_EQ(device.kind, QATTN_DEVICE_CUDA);
  EXPECT_EQ(device.ordinal, 3);
  EXPECT_EQ(device.stream, &device);
  char name[24];
  ASSERT_EQ(qattn_device_name(&device, name, sizeof name), QATTN_OK);
  EXPECT_STREQ(name, "cuda:3");
  EXPECT_EQ(qattn_device_name(&device, name, 6), QATTN_INVALID_ARGUMENT);
  ASSERT_EQ(qattn_device_best(&device, sizeof device), QATTN_OK);
  EXPECT_EQ(device.kind, static_cast<std::int32_t>(Device::best().kind()));
  ASSERT_EQ(qattn_device_for_data(&device, sizeof device, name), QATTN_OK);
  EXPECT_EQ(device.kind, QATTN_DEVICE_CPU);

  void* memory = nullptr;
  ASSERT_EQ(qattn_allocate(&device, 1000, &memory), QATTN_OK) << message();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0U);
  const std::vector<char> sent(1000, 'x');
  std::vector<char> received(1000);
  EXPECT_EQ(qattn_copy_to_device(&device, memory, sent.data(), 1000), QATTN_OK);
  EXPECT_EQ(qattn_copy_to_host(&device, received.data(), memory, 1000), QATTN_OK);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(qattn_copy_to_host(&device, nullptr, memory, 1), QATTN_INVALID_ARGUMENT);
  EXPECT_EQ(qattn_free(&device, memory), QATTN_OK);
  EXPECT_EQ(qattn_free(&device, nullptr), QATTN_OK);
}

TEST(Capi, KernelListIsThatOfCpp) {
  qattn_device device;
  ASSERT_EQ(qattn_device_cpu(&device, sizeof device), QATTN_OK);
  qattn_kernel_list* list = nullptr;
  ASSERT_EQ(qattn_kernels(&device, &list), QATTN_OK) << message();
  const std::vector<KernelStatus> expected = kernels(Device::cpu());
  ASSERT_EQ(qattn_kernel_list_size(list), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(qattn_kernel_list_name(list, i), expected[i].name);
    EXPECT_EQ(qattn_kernel_list_usable(list, i), expected[i].usable ? 1 : 0);
    EXPECT_EQ(qattn_kernel_list_reason(list, i), expected[i].reason);
  }
  EXPECT_EQ(qattn_kernel_list_name(list, expected.size()), nullptr);
  EXPECT_EQ(qattn_kernel_list_reason(list, std::numeric_limits<std::size_t>::max()), nullptr);
  qattn_kernel_list_free(list);
  qattn_kernel_list_free(nullptr);
}

TEST(Capi, ExplanationIsThatOfCpp) {
  CapiProblem problem(1, 4, 4, 2, 2, 16);
  problem.options.kernel = "reference/float64";
  const qattn_output out = problem.c_out(nullptr);
  qattn_explanation* explanation = nullptr;
  ASSERT_EQ(qattn_explain(&problem.device, &problem.c_q, &problem.c_k, &problem.c_v, &out,
                          &problem.options, &explanation),
            QATTN_OK)
      << message();
  Options options;
  options.kernel = "reference/float64";
  const Explanation expected =
      explain(Device::cpu(), problem.cpp_q(), problem.cpp_k(), problem.cpp_v(),
              OutputTensor{nullptr, problem.q_shape}, options);
  EXPECT_STREQ(qattn_explanation_kernel(explanation), "reference/float64");
  EXPECT_EQ(qattn_explanation_error(explanation), expected.error);
  EXPECT_EQ(qattn_explanation_text(explanation), expected.to_string());
  const qattn_kernel_list* passed_over = qattn_explanation_passed_over(explanation);
  ASSERT_EQ(qattn_kernel_list_size(passed_over), expected.passed_over.size());
  for (std::size_t i = 0; i < expected.passed_over.size(); ++i) {
    EXPECT_EQ(qattn_kernel_list_name(passed_over, i), expected.passed_over[i].name);
    EXPECT_EQ(qattn_kernel_list_reason(passed_over, i), expected.passed_over[i].reason);
  }
  qattn_explanation_free(explanation);
}

TEST(Capi, MachineIsThatOfCpp) {
  qattn_machine* machine = nullptr;
  ASSERT_EQ(qattn_machine_info(&machine), QATTN_OK) << message();
  const MachineInfo expected = machine_info();
  EXPECT_EQ(qattn_machine_cpu(machine), expected.cpu);
  ASSERT_EQ(qattn_machine_cpu_feature_count(machine), expected.cpu_features.size());
  for (std::size_t i = 0; i < expected.cpu_features.size(); ++i) {
    EXPECT_EQ(qattn_machine_cpu_feature(machine, i), expected.cpu_features[i]);
  }
  EXPECT_EQ(qattn_machine_cpu_feature(machine, expected.cpu_features.size()), nullptr);
  EXPECT_EQ(qattn_machine_cpu_threads(machine), expected.cpu_threads);
  EXPECT_EQ(qattn_machine_cuda(machine), expected.cuda);
  EXPECT_EQ(qattn_machine_cuda_driver(machine), expected.cuda_driver);
  EXPECT_EQ(qattn_machine_cuda_runtime(machine), expected.cuda_runtime);
  const std::size_t devices = qattn_machine_cuda_device_count(machine);
  ASSERT_EQ(devices, expected.cuda_devices.size());
  qattn_cuda_device device;
  for (std::size_t i = 0; i < devices; ++i) {
    ASSERT_EQ(qattn_machine_cuda_device(machine, i, &device, sizeof device), QATTN_OK);
    EXPECT_EQ(device.name, expected.cuda_devices[i].name);
    EXPECT_EQ(device.memory_bytes, expected.cuda_devices[i].memory_bytes);
    EXPECT_EQ(device.capability_major, expected.cuda_devices[i].capability_major);
  }
  EXPECT_EQ(qattn_machine_cuda_device(machine, devices, &device, sizeof device),
            QATTN_INVALID_ARGUMENT);
  qattn_machine_free(machine);
}

}  // namespace
}  // namespace qattn::test
