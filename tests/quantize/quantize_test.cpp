// quantize() on every device: the definition, bit for bit.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <tuple>

#include "oracle.hpp"

namespace qattn::test {
namespace {

constexpr std::array kTypes = {DataType::float32, DataType::float16, DataType::bfloat16};

std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = bits_of(values[i]);
  return bits;
}

// Runs on a device, in its own memory, `offset` elements into the allocations.
Quantized run(const Device& device, const Tensor& x, const Strides& out_strides,
              std::size_t out_size, std::size_t offset = 0, const QuantizeOptions& options = {}) {
  const std::size_t element = bytes_of(x.type);
  Buffer<std::byte> input(device, x.bytes.size() + offset * element);
  std::vector<std::byte> shifted(offset * element);
  shifted.insert(shifted.end(), x.bytes.begin(), x.bytes.end());
  input.copy_from(shifted.data());
  const std::vector<std::int8_t> untouched(out_size + offset, kUntouched);
  Buffer<std::int8_t> out(device, untouched.data(), untouched.size());
  const auto heads = static_cast<std::size_t>(x.shape.heads);
  const std::vector<float> no_scales(heads, std::nanf(""));
  Buffer<float> scale(device, no_scales.data(), heads);

  QuantizedTensor target;
  target.data = out.data() + offset;
  target.strides = out_strides;
  target.scale = scale.data();
  quantize(device, FloatTensor(input.data() + offset * element, x.type, x.shape, x.strides), target,
           options);
  Quantized result{std::vector<std::int8_t>(out_size + offset), std::vector<float>(heads)};
  out.copy_to(result.values.data());
  scale.copy_to(result.scales.data());
  result.values.erase(result.values.begin(),
                      result.values.begin() + static_cast<std::ptrdiff_t>(offset));
  return result;
}

void expect_same(const Quantized& got, const Quantized& expected) {
  EXPECT_EQ(bits_of(got.scales), bits_of(expected.scales));
  ASSERT_EQ(got.values.size(), expected.values.size());
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    ASSERT_EQ(static_cast<int>(got.values[i]), static_cast<int>(expected.values[i])) << i;
  }
}

// Random finite bits; heads differ in magnitude where the type lets them.
Tensor random_tensor(DataType type, const Shape& shape, const Strides& strides) {
  Tensor x(type, shape, strides);
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  x.for_elements([&](auto b, auto s, auto h, auto d) {
    std::uint32_t bits = bits_of(normal(random) * static_cast<float>(1 + h));
    if (type == DataType::bfloat16) bits >>= 16U;
    if (type == DataType::float16) bits = random() % 0x7C00U | (random() & 1U) << 15U;
    x.set(x.at(b, s, h, d), bits);
  });
  return x;
}

// The CPU, and the GPU where there is one.
class Quantize : public ::testing::TestWithParam<std::tuple<bool, DataType>> {
 protected:
  void SetUp() override {
    if (on_gpu() && Device::best().kind() == Device::Kind::cpu) {
      GTEST_SKIP() << "needs a GPU: " << machine_info().cuda;
    }
  }
  static bool on_gpu() { return std::get<0>(GetParam()); }
  static DataType type() { return std::get<1>(GetParam()); }
  static Device device() { return on_gpu() ? Device::cuda(0) : Device::cpu(); }

  static void expect_definition(const Tensor& x, std::size_t offset = 0) {
    const Strides out = contiguous_strides(x.shape);
    const auto size =
        static_cast<std::size_t>(x.shape.batch * x.shape.seq * x.shape.heads * x.shape.head_dim);
    expect_same(run(device(), x, out, size, offset), quantize_by_definition(x, out, size));
  }
};

class QuantizeHalves : public Quantize {};
class QuantizeFloats : public Quantize {};

TEST_P(Quantize, FollowsTheDefinitionForManyShapes) {
  for (const Shape& shape :
       {Shape{1, 1, 1, 1}, Shape{2, 72, 4, 32}, Shape{1, 5, 3, 17}, Shape{3, 1, 2, 256},
        Shape{2, 33, 7, 63}, Shape{1, 2, 1, 1000}, Shape{5, 3, 300, 4}}) {
    SCOPED_TRACE(std::to_string(shape.head_dim));
    const Tensor x = random_tensor(type(), shape, contiguous_strides(shape));
    expect_definition(x);
    expect_definition(x, 1);  // aligned to its elements alone
  }
}

TEST_P(Quantize, LargeHeadsAreSpreadWithTheSameResult) {
  for (const Shape& shape : {Shape{2, 700, 2, 128}, Shape{1, 2100, 3, 50}}) {
    expect_definition(random_tensor(type(), shape, contiguous_strides(shape)));
  }
}

TEST_P(Quantize, HonoursStridesAndWritesNothingBetweenRows) {
  const Shape shape{2, 9, 3, 24};
  // (batch, heads, seq, head_dim) with gaps in the input, rows 40 apart in the output.
  const Tensor x = random_tensor(type(), shape, {3 * 9 * 32 + 8, 32, 9 * 32});
  const Strides out{9 * 3 * 40, 3 * 40, 40};
  const std::size_t size = 2 * 9 * 3 * 40;
  expect_same(run(device(), x, out, size), quantize_by_definition(x, out, size));
}

TEST_P(Quantize, HeadsOfZerosGetScaleOne) {
  Tensor x(type(), {2, 3, 3, 8});
  const std::uint32_t one = type() == DataType::float32   ? 0x3F800000U
                            : type() == DataType::float16 ? 0x3C00U
                                                          : 0x3F80U;
  x.set(x.at(1, 2, 1, 7), one);
  const std::uint32_t minus_zero = type() == DataType::float32 ? 0x80000000U : 0x8000U;
  x.set(x.at(0, 0, 2, 0), minus_zero);
  const Quantized result = run(device(), x, x.strides, 2 * 3 * 3 * 8);
  EXPECT_EQ(result.scales[0], 1.0F);
  EXPECT_EQ(result.scales[1], 1.0F / 127.0F);
  EXPECT_EQ(result.scales[2], 1.0F);
  for (std::int64_t i = 0; i < 2 * 3 * 3 * 8; ++i) {
    EXPECT_EQ(result.values[static_cast<std::size_t>(i)], i == x.at(1, 2, 1, 7) ? 127 : 0);
  }
}

TEST_P(Quantize, EmptyHeadsGetScaleOne) {
  for (const Shape& shape : {Shape{0, 5, 3, 8}, Shape{5, 0, 3, 8}}) {
    const Quantized result = run(device(), Tensor(type(), shape), contiguous_strides(shape), 0);
    EXPECT_EQ(result.scales, (std::vector<float>{1, 1, 1}));
  }
  const Shape none{2, 3, 0, 8};
  EXPECT_TRUE(run(device(), Tensor(type(), none), contiguous_strides(none), 0).scales.empty());
}

// One head per bit pattern: every finite value becomes +-127 or 0 under its own scale.
TEST_P(QuantizeHalves, WidensEveryFiniteHalfExactly) {
  const std::uint32_t infinity = type() == DataType::float16 ? 0x7C00U : 0x7F80U;
  Tensor x(type(), {1, 1, 2 * infinity, 1});
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    x.set(2 * bits, bits);
    x.set(2 * bits + 1, bits | 0x8000U);
  }
  expect_definition(x);
}

TEST_P(QuantizeFloats, SubnormalAndHugeHeads) {
  // Head m holds multiples of the smallest float32 up to m.
  Tensor tiny(type(), {1, 4, 600, 1});
  for (std::uint32_t m = 0; m < 600; ++m) {
    for (std::uint32_t s = 0; s < 4; ++s) tiny.set(tiny.at(0, s, m, 0), m * (s + 1) / 4);
  }
  expect_definition(tiny);
  Tensor huge(type(), {1, 3, 1, 1});
  huge.set(0, bits_of(std::numeric_limits<float>::max()));
  huge.set(1, bits_of(-std::numeric_limits<float>::max()));
  huge.set(2, bits_of(-1e38F));
  expect_definition(huge);
}

TEST_P(QuantizeFloats, TiesGoToEven) {
  Tensor x(type(), {1, 128, 1, 2});
  for (int i = 0; i < 128; ++i) {
    x.set(2 * i, bits_of(4.0F * (static_cast<float>(i) - 0.5F)));
    x.set(2 * i + 1, bits_of(-4.0F * (static_cast<float>(i) - 0.5F)));
  }
  x.set(0, bits_of(4.0F * 127.0F));  // scale 4
  const Quantized result = run(device(), x, x.strides, 256);
  EXPECT_EQ(result.scales[0], 4.0F);
  for (int i = 1; i < 128; ++i) {
    const int even = i % 2 == 0 ? i : i - 1;
    EXPECT_EQ(result.values[static_cast<std::size_t>(2 * i)], even) << i;
    EXPECT_EQ(result.values[static_cast<std::size_t>(2 * i + 1)], -even) << i;
  }
}

TEST_P(Quantize, ValuesThatAreNotFiniteSpoilTheirHeadAlone) {
  const std::uint32_t infinity = type() == DataType::float32   ? 0x7F800000U
                                 : type() == DataType::float16 ? 0x7C00U
                                                               : 0x7F80U;
  const std::uint32_t sign = type() == DataType::float32 ? 0x80000000U : 0x8000U;
  for (const std::uint32_t bad : {infinity, infinity | sign, infinity + 1, infinity + 1 + sign}) {
    for (const std::int64_t seq : {std::int64_t{6}, std::int64_t{3000}}) {
      const Shape shape{1, seq, 3, 32};
      const Tensor good = random_tensor(type(), shape, contiguous_strides(shape));
      Tensor x = good;
      x.set(x.at(0, seq - 1, 1, 30), bad);
      const auto size = static_cast<std::size_t>(seq * 3 * 32);
      if (!on_gpu()) {
        std::vector<std::int8_t> out(size, kUntouched);
        std::vector<float> scale(3, -7.0F);
        try {
          quantize(Device::cpu(), FloatTensor(x.bytes.data(), type(), shape, x.strides),
                   QuantizedTensor(out.data(), shape, scale.data()));
          FAIL() << "no error";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
          const std::string what = (bad & ~sign) == infinity ? "infinity" : "NaN";
          EXPECT_EQ(std::string(error.what()),
                    "input holds " + what + " in head 1 (allowed: finite values)");
        }
        EXPECT_EQ(out, std::vector<std::int8_t>(size, kUntouched));
        EXPECT_EQ(scale, std::vector<float>(3, -7.0F));
        continue;
      }
      Quantized expected = quantize_by_definition(good, x.strides, size);
      const Quantized got = run(device(), x, x.strides, size);
      EXPECT_TRUE(std::isnan(got.scales[1]));
      EXPECT_EQ(got.scales[0], expected.scales[0]);
      EXPECT_EQ(got.scales[2], expected.scales[2]);
      x.for_elements([&](auto b, auto s, auto h, auto d) {
        const auto i = static_cast<std::size_t>(x.at(b, s, h, d));
        ASSERT_EQ(static_cast<int>(got.values[i]), h == 1 ? 0 : expected.values[i]) << i;
      });
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<bool, DataType>>& info) {
  constexpr std::array kNames = {"int8", "uint8", "float32", "float16", "bfloat16"};
  return std::string(std::get<0>(info.param) ? "cuda_" : "cpu_") +
         kNames[static_cast<std::size_t>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(Devices, Quantize,
                         ::testing::Combine(::testing::Bool(), ::testing::ValuesIn(kTypes)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Devices, QuantizeFloats,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(DataType::float32)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Devices, QuantizeHalves,
    ::testing::Combine(::testing::Bool(), ::testing::Values(DataType::float16, DataType::bfloat16)),
    name_of);

}  // namespace
}  // namespace qattn::test
