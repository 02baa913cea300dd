// quantize(): arguments, threads and the floating-point environment.
#include <gtest/gtest.h>

#include <cfenv>
#include <functional>
#include <random>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "qattn/qattn.hpp"

namespace qattn::test {
namespace {

class QuantizeCall : public ::testing::Test {
 protected:
  const Shape shape{2, 6, 3, 16};
  std::vector<float> x = std::vector<float>(2 * 6 * 3 * 16, 1.0F);
  std::vector<std::int8_t> out = std::vector<std::int8_t>(x.size(), -128);
  std::vector<float> scale = std::vector<float>(3, -7.0F);
  FloatTensor input{x.data(), shape};
  QuantizedTensor target{out.data(), shape, scale.data()};
  QuantizeOptions options;

  // Expects an error whose message begins so, and nothing written.
  void expect_error(ErrorCode code, const std::string& beginning,
                    const Device& device = Device::cpu()) {
    try {
      quantize(device, input, target, options);
      ADD_FAILURE() << "no error: " << beginning;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_EQ(std::string(error.what()).rfind(beginning, 0), 0U) << error.what();
    }
    EXPECT_EQ(out, std::vector<std::int8_t>(x.size(), -128)) << beginning;
    EXPECT_EQ(scale, std::vector<float>(3, -7.0F)) << beginning;
  }
};

TEST_F(QuantizeCall, RefusesOtherGranularitiesByName) {
  using Granularity = Scale::Granularity;
  for (const auto& [granularity, name] : {std::pair{Granularity::per_tensor, "per_tensor"},
                                          {Granularity::per_token, "per_token"},
                                          {Granularity::per_batch_head, "per_batch_head"},
                                          {Granularity::per_block, "per_block"},
                                          {Granularity::per_channel, "per_channel"}}) {
    target.granularity = granularity;
    expect_error(ErrorCode::unsupported, std::string("out.granularity is ") + name);
  }
}

TEST_F(QuantizeCall, RefusesBadArgumentsByName) {
  const FloatTensor good_input = input;
  const QuantizedTensor good_target = target;
  const auto expect = [&](const std::string& beginning, const std::function<void()>& spoil) {
    spoil();
    expect_error(ErrorCode::invalid_argument, beginning);
    input = good_input;
    target = good_target;
    options = {};
  };
  expect("input.dtype", [&] { input.dtype = DataType::int8; });
  expect("input.data is null", [&] { input.data = nullptr; });
  expect("out.data is null", [&] { target.data = nullptr; });
  expect("out.scale is null", [&] { target.scale = nullptr; });
  expect("input.data is not aligned",
         [&] { input.data = reinterpret_cast<const std::byte*>(x.data()) + 2; });
  expect("input.shape", [&] { input.shape.seq = -1; });
  expect("input.shape.head_dim is 0", [&] { input.shape.head_dim = 0; });
  expect("input.strides.seq is -48", [&] { input.strides.seq = -48; });
  expect("out.strides.heads is 0", [&] { target.strides.heads = 0; });
  expect("out.strides.heads is 15", [&] { target.strides.heads = 15; });
  expect("out.data overlaps input.data",
         [&] { target.data = reinterpret_cast<std::int8_t*>(x.data()); });
  expect("out.scale overlaps input.data", [&] { target.scale = x.data() + 9; });
  expect("options.threads is -2", [&] { options.threads = -2; });
}

TEST_F(QuantizeCall, RefusesADeviceThatCannotBeUsed) {
  expect_error(ErrorCode::device_unavailable, "device cuda:999 cannot be used", Device::cuda(999));
}

TEST_F(QuantizeCall, ViewIsAnInputOfForward) {
  quantize(Device::cpu(), input, target);
  const Int8Tensor view = target.view(shape);
  std::vector<float> result(x.size());
  forward(Device::cpu(), view, view, view, OutputTensor{result.data(), shape});
  for (const float value : result) EXPECT_NEAR(value, 1.0F, 1e-5F);
}

// Random values of 20 magnitudes in (3, 301, 5, 77).
class QuantizeBits : public ::testing::Test {
 protected:
  const Shape shape{3, 301, 5, 77};
  const std::size_t size = 3 * 301 * 5 * 77;
  std::vector<float> x;

  void SetUp() override {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < size; ++i) {
      x.push_back(std::ldexp(normal(random), static_cast<int>(i % 20) - 10));
    }
  }
  std::pair<std::vector<std::int8_t>, std::vector<float>> run(const QuantizeOptions& options = {}) {
    std::vector<std::int8_t> out(size);
    std::vector<float> scale(5);
    quantize(Device::cpu(), FloatTensor(x.data(), shape),
             QuantizedTensor(out.data(), shape, scale.data()), options);
    return {out, scale};
  }
};

TEST_F(QuantizeBits, DoNotDependOnThreads) {
  QuantizeOptions options;
  options.threads = 1;
  const auto expected = run(options);
  for (const int threads : {0, 2, 7}) {
    options.threads = threads;
    EXPECT_EQ(run(options), expected) << threads;
  }
  options.executor.run = [](void*, std::int64_t tasks, void (*task)(void*, std::int64_t),
                            void* argument) {
    for (std::int64_t i = tasks - 1; i >= 0; --i) task(argument, i);
  };
  EXPECT_EQ(run(options), expected);
}

TEST_F(QuantizeBits, DoNotDependOnTheCallersRoundingMode) {
  for (float& value : x) value = std::ldexp(value, -140);  // many are subnormal
  const auto expected = run();
  for (const int mode : {FE_UPWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const auto got = run();
    EXPECT_EQ(std::fegetround(), mode) << "not restored";
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(got, expected);
  }
#if defined(__SSE2__)
  const unsigned before = _mm_getcsr();
  constexpr unsigned kFlush = 0x8040;  // FTZ and DAZ
  _mm_setcsr(before | kFlush);
  const auto got = run();
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after & kFlush, kFlush) << "not restored";
  EXPECT_EQ(got, expected);
#endif
}

}  // namespace
}  // namespace qattn::test
