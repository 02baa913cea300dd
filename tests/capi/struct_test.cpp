// Structs with a size: old callers, new callers, wrong sizes.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>

#include "problem.hpp"

extern "C" void qattn_test_struct_sizes(size_t sizes[8]);

namespace qattn::test {
namespace {

using ::testing::Test;

// The options of a later version: known fields, then one that this library does not know.
struct LaterOptions {
  qattn_options known;
  std::int64_t new_field;
};

class Structs : public Test {
 protected:
  CapiProblem problem{1, 5, 9, 4, 2, 16};
  std::vector<float> out = std::vector<float>(problem.out_size());
  qattn_output c_out = problem.c_out(out.data());

  qattn_status run(const qattn_options* options) {
    return qattn_forward(&problem.device, &problem.c_q, &problem.c_k, &problem.c_v, &c_out,
                         options);
  }
  static std::string message() { return qattn_last_error_message(); }
  std::vector<float> expected(const Options& options) {
    std::vector<float> result(problem.out_size());
    forward(Device::cpu(), problem.cpp_q(), problem.cpp_k(), problem.cpp_v(),
            OutputTensor{result.data(), problem.q_shape}, options);
    return result;
  }
};

TEST_F(Structs, HaveTheSameSizeInCAndCpp) {
  std::array<std::size_t, 8> sizes{};
  qattn_test_struct_sizes(sizes.data());
  EXPECT_EQ(sizes, (std::array<std::size_t, 8>{
                       sizeof(qattn_device), sizeof(qattn_tensor), sizeof(qattn_output),
                       sizeof(qattn_options), sizeof(qattn_float_tensor), sizeof(qattn_quantized),
                       sizeof(qattn_quantize_options), sizeof(qattn_cuda_device)}));
}

TEST_F(Structs, InitialisersStoreTheDefaultsOfTheCppApi) {
  const Options defaults;
  const qattn_options& options = problem.options;
  EXPECT_EQ(options.struct_size, sizeof options);
  EXPECT_EQ(options.mask, QATTN_MASK_CAUSAL);
  EXPECT_EQ(options.precision, QATTN_PRECISION_HIGH);
  EXPECT_EQ(options.window_left, defaults.mask.window_left);
  EXPECT_EQ(options.window_right, defaults.mask.window_right);
  EXPECT_EQ(options.has_softmax_scale, 0);
  EXPECT_EQ(options.kernel, nullptr);
  EXPECT_EQ(options.threads, 0);
  EXPECT_EQ(problem.c_q.struct_size, sizeof(qattn_tensor));
  EXPECT_EQ(problem.c_q.dtype, QATTN_INT8);
  EXPECT_EQ(problem.c_q.granularity, QATTN_PER_HEAD);
  EXPECT_EQ(problem.c_q.strides[0], 5 * 4 * 16);
  EXPECT_EQ(problem.c_q.strides[1], 4 * 16);
  EXPECT_EQ(problem.c_q.strides[2], 16);
  EXPECT_EQ(c_out.dtype, QATTN_FLOAT32);
}

// A caller compiled before `precision` was followed by anything.
TEST_F(Structs, OlderOptionsGetTheDefaultsOfLaterFields) {
  alignas(8) std::array<unsigned char, sizeof(qattn_options)> memory;
  memory.fill(0xFF);  // what lies behind an old struct is not the library's
  constexpr std::size_t kOldSize = offsetof(qattn_options, window_left);
  auto* options = reinterpret_cast<qattn_options*>(memory.data());
  ASSERT_EQ(qattn_options_init(options, kOldSize), QATTN_OK);
  EXPECT_EQ(memory[kOldSize], 0xFF) << "the initialiser wrote past an old struct";
  options->mask = QATTN_MASK_FULL;
  options->precision = QATTN_PRECISION_FAST;
  ASSERT_EQ(run(options), QATTN_OK) << message();
  Options same;
  same.mask = Mask::full();
  same.precision = Precision::fast;
  EXPECT_EQ(bits(out), bits(expected(same)));
}

TEST_F(Structs, NewerOptionsAreTakenIfTheNewFieldsAreNotSet) {
  LaterOptions options;
  std::memset(&options, 0xFF, sizeof options);
  ASSERT_EQ(qattn_options_init(&options.known, sizeof options), QATTN_OK);
  EXPECT_EQ(options.known.struct_size, sizeof options);
  EXPECT_EQ(options.new_field, 0);
  ASSERT_EQ(run(&options.known), QATTN_OK) << message();
  EXPECT_EQ(bits(out), bits(expected({})));
}

TEST_F(Structs, NewerOptionsAreRefusedIfANewFieldIsSet) {
  LaterOptions options;
  ASSERT_EQ(qattn_options_init(&options.known, sizeof options), QATTN_OK);
  options.new_field = 1;
  out.assign(out.size(), 42.0F);
  EXPECT_EQ(run(&options.known), QATTN_INVALID_ARGUMENT);
  EXPECT_NE(message().find("options has a field set at byte 144"), std::string::npos) << message();
  EXPECT_EQ(out, std::vector<float>(out.size(), 42.0F)) << "written in spite of the error";
}

TEST_F(Structs, ImpossibleSizesAreRefused) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{12}, sizeof(qattn_options) - 4,
        sizeof(qattn_options) + 1, std::size_t{4104}, std::numeric_limits<std::size_t>::max()}) {
    problem.options.struct_size = size;
    EXPECT_EQ(run(&problem.options), QATTN_INVALID_ARGUMENT) << size;
    EXPECT_NE(message().find("options.struct_size is " + std::to_string(size)), std::string::npos)
        << message();
    qattn_options other;
    EXPECT_EQ(qattn_options_init(&other, size), QATTN_INVALID_ARGUMENT) << size;
  }
}

TEST_F(Structs, EveryStructIsChecked) {
  qattn_tensor bad_tensor = problem.c_q;
  bad_tensor.struct_size = 1;
  const qattn_device& device = problem.device;
  EXPECT_EQ(qattn_forward(&device, &bad_tensor, &problem.c_k, &problem.c_v, &c_out, nullptr),
            QATTN_INVALID_ARGUMENT);
  EXPECT_EQ(message().rfind("q.struct_size is 1", 0), 0U) << message();
  EXPECT_EQ(qattn_forward(&device, &problem.c_q, &bad_tensor, &problem.c_v, &c_out, nullptr),
            QATTN_INVALID_ARGUMENT);
  EXPECT_EQ(message().rfind("k.struct_size is 1", 0), 0U) << message();
  EXPECT_EQ(qattn_forward(&device, &problem.c_q, &problem.c_k, nullptr, &c_out, nullptr),
            QATTN_INVALID_ARGUMENT);
  EXPECT_EQ(message().rfind("v is null", 0), 0U) << message();
  EXPECT_EQ(qattn_forward(&device, &problem.c_q, &problem.c_k, &problem.c_v, nullptr, nullptr),
            QATTN_INVALID_ARGUMENT);
  EXPECT_EQ(message().rfind("out is null", 0), 0U) << message();
  EXPECT_EQ(qattn_forward(nullptr, &problem.c_q, &problem.c_k, &problem.c_v, &c_out, nullptr),
            QATTN_INVALID_ARGUMENT);
  EXPECT_EQ(message().rfind("device is null", 0), 0U) << message();
}

TEST_F(Structs, ReservedFieldsMustBeZero) {
  problem.c_k.reserved = 3;
  EXPECT_EQ(run(nullptr), QATTN_INVALID_ARGUMENT);
  EXPECT_EQ(message(), "k.reserved is 3 (allowed: 0)");
}

TEST_F(Structs, NumbersThatAreNoEnumeratorAreRefusedByName) {
  const auto expect_refusal = [&](std::int32_t& field, std::int32_t number, const char* name) {
    const std::int32_t before = field;
    field = number;
    EXPECT_EQ(run(&problem.options), QATTN_INVALID_ARGUMENT) << name;
    EXPECT_EQ(message().rfind(std::string(name) + " is " + std::to_string(number), 0), 0U)
        << message();
    field = before;
  };
  expect_refusal(problem.options.mask, 5, "options.mask");
  expect_refusal(problem.options.mask, -1, "options.mask");
  expect_refusal(problem.options.precision, 2, "options.precision");
  expect_refusal(problem.device.kind, 2, "device.kind");
  expect_refusal(problem.c_q.dtype, 5, "q.dtype");
  expect_refusal(problem.c_k.granularity, 6, "k.granularity");
  expect_refusal(problem.c_v.layout, 3, "v.layout");
  expect_refusal(c_out.dtype, -7, "out.dtype");
  expect_refusal(c_out.granularity, 256, "out.granularity");
  EXPECT_EQ(run(&problem.options), QATTN_OK) << message();
}

}  // namespace
}  // namespace qattn::test
