// Errors as C callers see them: a status, a message per thread, no exception.
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "problem.hpp"

namespace qattn::test {
namespace {

std::string message() { return qattn_last_error_message(); }

class Status : public ::testing::Test {
 protected:
  CapiProblem problem{1, 6, 6, 2, 2, 16};
  std::vector<float> out = std::vector<float>(problem.out_size(), 42.0F);

  // The status of the problem; checks that nothing was written and that C++ throws the same.
  qattn_status failure() {
    const qattn_status status = problem.run(out.data());
    EXPECT_EQ(out, std::vector<float>(problem.out_size(), 42.0F))
        << "written in spite of " << qattn_status_name(status);
    return status;
  }
};

TEST_F(Status, InvalidArgument) {
  problem.c_q.data = nullptr;
  EXPECT_EQ(failure(), QATTN_INVALID_ARGUMENT);
  EXPECT_EQ(message().rfind("q.data is null", 0), 0U) << message();
}

TEST_F(Status, NumbersThatAreNoElementTypeAreToldThoseOfTheArgument) {
  for (const std::int32_t number : {-1, 5, 99}) {
    const std::string given = ".dtype is " + std::to_string(number);
    problem.c_k.dtype = number;
    EXPECT_EQ(failure(), QATTN_INVALID_ARGUMENT);
    EXPECT_EQ(message(), "k" + given + " (allowed: QATTN_INT8, QATTN_UINT8)");
    problem.c_k.dtype = QATTN_INT8;

    qattn_output output = problem.c_out(out.data());
    output.dtype = number;
    EXPECT_EQ(qattn_forward(&problem.device, &problem.c_q, &problem.c_k, &problem.c_v, &output,
                            &problem.options),
              QATTN_INVALID_ARGUMENT);
    EXPECT_EQ(message(), "out" + given +
                             " (allowed: QATTN_FLOAT32, QATTN_FLOAT16, QATTN_BFLOAT16,"
                             " QATTN_INT8)");

    qattn_float_tensor input;
    ASSERT_EQ(qattn_float_tensor_init(&input, sizeof input, out.data(), number, 1, 6, 2, 16),
              QATTN_OK);
    std::vector<std::int8_t> values(out.size());
    float scale[2];
    qattn_quantized quantized;
    ASSERT_EQ(qattn_quantized_init(&quantized, sizeof quantized, values.data(), scale, 1, 6, 2, 16),
              QATTN_OK);
    EXPECT_EQ(qattn_quantize(&problem.device, &input, &quantized, nullptr), QATTN_INVALID_ARGUMENT);
    EXPECT_EQ(message(),
              "input" + given + " (allowed: QATTN_FLOAT32, QATTN_FLOAT16, QATTN_BFLOAT16)");
  }
}

TEST_F(Status, FieldsThatTheMaskDoesNotReadAreRefused) {
  const qattn_options defaults = problem.options;
  const auto refused = [&](const std::string& argument) {
    EXPECT_EQ(failure(), QATTN_INVALID_ARGUMENT) << argument;
    EXPECT_EQ(message().rfind(argument, 0), 0U) << message();
    problem.options = defaults;
  };
  problem.options.window_left = 128;
  refused("options.mask.window_left is 128");
  problem.options.mask = QATTN_MASK_FULL;
  problem.options.window_right = 3;
  refused("options.mask.window_right is 3");
  problem.options.mask_data = out.data();
  refused("options.mask.data is set");
  problem.options.mask_strides[1] = 6;
  refused("options.mask.head_stride is 6");
}

TEST_F(Status, OptionsFilledWithZerosHaveNoWindow) {
  std::vector<float> expected(problem.out_size());
  ASSERT_EQ(problem.run(expected.data()), QATTN_OK) << message();
  problem.options = {};
  problem.options.struct_size = sizeof problem.options;
  ASSERT_EQ(problem.run(out.data()), QATTN_OK) << message();
  EXPECT_EQ(bits(out), bits(expected));
}

TEST_F(Status, TheCpuHasNoOrdinalAndNoStream) {
  problem.device.ordinal = 1;
  EXPECT_EQ(failure(), QATTN_INVALID_ARGUMENT);
  EXPECT_EQ(message().rfind("device.ordinal is 1", 0), 0U) << message();
  problem.device.ordinal = 0;
  problem.device.stream = &problem;
  EXPECT_EQ(failure(), QATTN_INVALID_ARGUMENT);
  EXPECT_EQ(message().rfind("device.stream is set", 0), 0U) << message();
}

TEST_F(Status, Unsupported) {
  problem.options.soft_cap = 30.0F;
  EXPECT_EQ(failure(), QATTN_UNSUPPORTED);
  EXPECT_NE(message().find("options.soft_cap"), std::string::npos) << message();
}

TEST_F(Status, UnknownKernel) {
  problem.options.kernel = "cpu/abacus";
  EXPECT_EQ(failure(), QATTN_UNKNOWN_KERNEL);
  EXPECT_NE(message().find("\"cpu/abacus\""), std::string::npos) << message();
  EXPECT_NE(message().find("cpu/scalar"), std::string::npos) << message();
}

TEST_F(Status, KernelUnusable) {
  problem.options.kernel = "cuda/sm80";
  EXPECT_EQ(failure(), QATTN_KERNEL_UNUSABLE);
}

TEST_F(Status, DeviceUnavailable) {
  ASSERT_EQ(qattn_device_cuda(&problem.device, sizeof problem.device, 999, nullptr), QATTN_OK);
  EXPECT_EQ(failure(), QATTN_DEVICE_UNAVAILABLE);
  EXPECT_NE(message().find("cuda:999"), std::string::npos) << message();
}

TEST_F(Status, OutOfMemory) {
  void* memory = &memory;
  EXPECT_EQ(qattn_allocate(&problem.device, SIZE_MAX / 4, &memory), QATTN_OUT_OF_MEMORY);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(problem.run(out.data()), QATTN_OK) << "unusable after running out of memory";
}

TEST_F(Status, CudaError) {
  if (Device::best().kind() != Device::Kind::cuda) {
    GTEST_SKIP() << "needs a GPU: " << machine_info().cuda;
  }
  qattn_device gpu;
  ASSERT_EQ(qattn_device_best(&gpu, sizeof gpu), QATTN_OK);
  char from = 'x';
  EXPECT_EQ(qattn_copy_to_device(&gpu, reinterpret_cast<void*>(256), &from, 1), QATTN_CUDA_ERROR);
}

// What an executor in C++ throws ends at the boundary.
template <typename Exception>
void throwing_executor(void*, std::int64_t, void (*)(void*, std::int64_t), void*) {
  throw Exception("from the executor");
}
struct OutOfMemory : std::bad_alloc {
  explicit OutOfMemory(const char*) {}
};
struct NotAnException {
  explicit NotAnException(const char*) {}
};

TEST_F(Status, ExceptionsOfTheExecutorDoNotCross) {
  problem.options.executor = &throwing_executor<std::runtime_error>;
  EXPECT_EQ(problem.run(out.data()), QATTN_INTERNAL_ERROR);
  EXPECT_EQ(message(), "from the executor");
  problem.options.executor = &throwing_executor<OutOfMemory>;
  EXPECT_EQ(problem.run(out.data()), QATTN_OUT_OF_MEMORY);
  EXPECT_EQ(message().rfind("out of host memory", 0), 0U) << message();
  problem.options.executor = &throwing_executor<NotAnException>;
  EXPECT_EQ(problem.run(out.data()), QATTN_INTERNAL_ERROR);
  problem.options.executor = nullptr;
  EXPECT_EQ(problem.run(out.data()), QATTN_OK) << "unusable after an exception";
}

TEST_F(Status, SuccessKeepsTheLastMessage) {
  problem.options.kernel = "cpu/abacus";
  ASSERT_EQ(problem.run(out.data()), QATTN_UNKNOWN_KERNEL);
  const std::string before = message();
  problem.options.kernel = "";
  ASSERT_EQ(problem.run(out.data()), QATTN_OK);
  EXPECT_EQ(message(), before);
}

TEST_F(Status, EachThreadHasItsOwnMessage) {
  problem.options.kernel = "cpu/abacus";
  ASSERT_EQ(problem.run(out.data()), QATTN_UNKNOWN_KERNEL);
  std::string first = "untouched";
  std::string later;
  std::thread other([&] {
    first = message();
    CapiProblem theirs(1, 2, 2, 1, 1, 8);
    std::vector<float> their_out(theirs.out_size());
    theirs.options.threads = -1;
    EXPECT_EQ(theirs.run(their_out.data()), QATTN_INVALID_ARGUMENT);
    later = message();
  });
  other.join();
  EXPECT_EQ(first, "");
  EXPECT_NE(later.find("options.threads is -1"), std::string::npos) << later;
  EXPECT_NE(message().find("cpu/abacus"), std::string::npos) << message();
}

TEST_F(Status, VeryLongMessagesAreCut) {
  const std::string name(100'000, 'x');
  problem.options.kernel = name.c_str();
  EXPECT_EQ(failure(), QATTN_UNKNOWN_KERNEL);
  EXPECT_LT(message().size(), 10'000U);
  EXPECT_EQ(message().substr(message().size() - 6), "xxx...");
}

TEST_F(Status, HandlesAreNullAfterAnError) {
  problem.device.kind = 77;
  auto* list = reinterpret_cast<qattn_kernel_list*>(&problem);
  EXPECT_EQ(qattn_kernels(&problem.device, &list), QATTN_INVALID_ARGUMENT);
  EXPECT_EQ(list, nullptr);
  EXPECT_EQ(qattn_kernels(&problem.device, nullptr), QATTN_INVALID_ARGUMENT);
  EXPECT_EQ(qattn_kernel_list_size(nullptr), 0U);
  EXPECT_EQ(qattn_explanation_kernel(nullptr), nullptr);
}

TEST_F(Status, NamesOfStatuses) {
  EXPECT_STREQ(qattn_status_name(QATTN_OK), "ok");
  EXPECT_STREQ(qattn_status_name(QATTN_KERNEL_UNUSABLE), "kernel_unusable");
  EXPECT_STREQ(qattn_status_name(99), "unknown");
}

}  // namespace
}  // namespace qattn::test
