// Misuse: every bad argument is an Error that names it, and nothing has been written.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/call.hpp"
#include "support/run.hpp"

namespace qattn::test {
namespace {

struct Misuse {
  const char* name;
  ErrorCode code;
  std::vector<std::string> mentions;  // what the message must name
  std::function<void(Call&)> spoil;
};
void PrintTo(const Misuse& misuse, std::ostream* stream) { *stream << misuse.name; }

class Errors : public testing::TestWithParam<Misuse> {};

std::string misuse_name(const testing::TestParamInfo<Misuse>& info) { return info.param.name; }

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;

const Misuse kPointers[] = {
    {"QNull", kInvalid, {"q.data", "null"}, [](Call& c) { c.q.data = nullptr; }},
    {"KNull", kInvalid, {"k.data", "null"}, [](Call& c) { c.k.data = nullptr; }},
    {"VNull", kInvalid, {"v.data", "null"}, [](Call& c) { c.v.data = nullptr; }},
    {"OutNull", kInvalid, {"out", "null"}, [](Call& c) { c.out.data = nullptr; }},
    {"QScaleNull", kInvalid, {"q.scale", "null"}, [](Call& c) { c.q.scale.data = nullptr; }},
    {"KScaleNull", kInvalid, {"k.scale", "null"}, [](Call& c) { c.k.scale.data = nullptr; }},
    {"VScaleNull", kInvalid, {"v.scale", "null"}, [](Call& c) { c.v.scale.data = nullptr; }},
    {"OutMisaligned",
     kInvalid,
     {"out.data", "4-byte"},
     [](Call& c) { c.out.data = static_cast<char*>(c.out.data) + 1; }},
    {"ScaleMisaligned",
     kInvalid,
     {"k.scale.data", "4-byte"},
     [](Call& c) {
       const void* address = reinterpret_cast<const char*>(c.k.scale.data) + 2;
       c.k.scale.data = static_cast<const float*>(address);
     }},
    {"OutOverQ", kInvalid, {"out", "q"}, [](Call& c) { c.q.data = c.out_memory.data() + 7; }},
    {"OutOverK", kInvalid, {"out", "k"}, [](Call& c) { c.k.data = c.out_memory.data() + 383; }},
    {"OutOverV", kInvalid, {"out", "v"}, [](Call& c) { c.v.data = c.out_memory.data() - 1; }},
    {"OutOverScale",
     kInvalid,
     {"out", "k.scale"},
     [](Call& c) { c.k.scale.data = c.out_memory.data() + 100; }},
    {"OutOverLse",
     kInvalid,
     {"out", "lse"},
     [](Call& c) { c.options.lse = c.out_memory.data() + 380; }},
    {"LseOverQ", kInvalid, {"lse", "q"}, [](Call& c) { c.q.data = c.lse_memory.data(); }},
    {"LseOverScale",
     kInvalid,
     {"lse", "v.scale"},
     [](Call& c) { c.v.scale.data = c.lse_memory.data() + 23; }},
    {"WorkspaceOverOut",
     kInvalid,
     {"workspace", "out"},
     [](Call& c) {
       // Half of it ends inside out.
       const auto address = reinterpret_cast<std::uintptr_t>(c.out_memory.data()) / 256 * 256;
       // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that is off by one is the point.
       c.options.workspace = reinterpret_cast<void*>(address);
       c.options.workspace_bytes = 1024;
     }},
    {"WorkspaceNull", kInvalid, {"workspace"}, [](Call& c) { c.options.workspace_bytes = 256; }},
    {"WorkspaceMisaligned",
     kInvalid,
     {"workspace", "256"},
     [](Call& c) {
       c.options.workspace = c.workspace.data() + 8;
       c.options.workspace_bytes = 256;
     }},
};

const Misuse kShapes[] = {
    {"HeadDimZero",
     kInvalid,
     {"head_dim", "0", "256"},
     [](Call& c) {
       for (Shape* s : {&c.q.shape, &c.k.shape, &c.v.shape, &c.out.shape}) s->head_dim = 0;
     }},
    {"HeadDimTooLarge",
     kInvalid,
     {"head_dim", "257", "256"},
     [](Call& c) {
       for (Shape* s : {&c.q.shape, &c.k.shape, &c.v.shape, &c.out.shape}) s->head_dim = 257;
     }},
    {"HeadDimOfK", kInvalid, {"k", "head_dim", "15"}, [](Call& c) { c.k.shape.head_dim = 15; }},
    {"HeadDimOfOut", kInvalid, {"out"}, [](Call& c) { c.out.shape.head_dim = 15; }},
    {"BatchOfK", kInvalid, {"k", "batch", "3"}, [](Call& c) { c.k.shape.batch = 3; }},
    {"BatchOfV", kInvalid, {"v"}, [](Call& c) { c.v.shape.batch = 1; }},
    {"SeqOfV", kInvalid, {"v"}, [](Call& c) { c.v.shape.seq = 4; }},
    {"HeadsOfV", kInvalid, {"v"}, [](Call& c) { c.v.shape.heads = 4; }},
    {"SeqOfOut", kInvalid, {"out"}, [](Call& c) { c.out.shape.seq = 5; }},
    {"HeadsOfOut", kInvalid, {"out"}, [](Call& c) { c.out.shape.heads = 2; }},
    {"BatchOfOut", kInvalid, {"out"}, [](Call& c) { c.out.shape.batch = 1; }},
    {"NegativeBatch", kInvalid, {"q", "-2"}, [](Call& c) { c.q.shape.batch = -2; }},
    {"NegativeSeq", kInvalid, {"k", "-1"}, [](Call& c) { c.k.shape.seq = -1; }},
    {"NegativeHeads", kInvalid, {"q", "-4"}, [](Call& c) { c.q.shape.heads = -4; }},
    {"ExtentPast32Bits",
     kInvalid,
     {"k"},
     [](Call& c) { c.k.shape.seq = c.v.shape.seq = std::int64_t{1} << 31; }},
    {"HeadsNotDivisible33By2",
     kInvalid,
     {"heads", "33", "2"},
     [](Call& c) { c.q.shape.heads = c.out.shape.heads = 33; }},
    {"HeadsNotDivisible3By2",
     kInvalid,
     {"heads", "3", "2"},
     [](Call& c) { c.q.shape.heads = c.out.shape.heads = 3; }},
    {"FewerQueryHeads",
     kInvalid,
     {"heads", "2", "4"},
     [](Call& c) {
       c.q.shape.heads = c.out.shape.heads = 2;
       c.k.shape.heads = c.v.shape.heads = 4;
     }},
    {"NoKeyHeads",
     kInvalid,
     {"heads", "0"},
     [](Call& c) { c.k.shape.heads = c.v.shape.heads = 0; }},
};

const Misuse kStrides[] = {
    {"QStrideZero", kInvalid, {"q.strides", "0"}, [](Call& c) { c.q.strides.seq = 0; }},
    {"KStrideNegative", kInvalid, {"k.strides", "-32"}, [](Call& c) { c.k.strides.seq = -32; }},
    {"VStrideNegative", kInvalid, {"v.strides", "-1"}, [](Call& c) { c.v.strides.batch = -1; }},
    {"QHeadStrideZero", kInvalid, {"q.strides", "heads"}, [](Call& c) { c.q.strides.heads = 0; }},
    {"OutStrideZero", kInvalid, {"out.strides"}, [](Call& c) { c.out.strides.batch = 0; }},
    {"OutStrideNegative", kInvalid, {"out.strides"}, [](Call& c) { c.out.strides.seq = -64; }},
    {"OutOverItself",
     kInvalid,
     {"out.strides", "share memory"},
     [](Call& c) { c.out.strides.heads = 15; }},
    {"OutRowsOverlap", kInvalid, {"out.strides"}, [](Call& c) { c.out.strides.batch = 128; }},
    {"StridePast63Bits",
     kInvalid,
     {"k.strides"},
     [](Call& c) { c.k.strides.batch = std::numeric_limits<std::int64_t>::max() - 3; }},
};

const Misuse kOptions[] = {
    {"SoftmaxScaleNan",
     kInvalid,
     {"softmax_scale", "nan"},
     [](Call& c) { c.options.softmax_scale = std::nanf(""); }},
    {"SoftmaxScaleInfinite",
     kInvalid,
     {"softmax_scale", "inf"},
     [](Call& c) { c.options.softmax_scale = -kInfinity; }},
    {"NegativeThreads", kInvalid, {"threads", "-1"}, [](Call& c) { c.options.threads = -1; }},
    {"NegativeSoftCap", kInvalid, {"soft_cap"}, [](Call& c) { c.options.soft_cap = -1.0F; }},
    {"SoftCapNan", kInvalid, {"soft_cap"}, [](Call& c) { c.options.soft_cap = std::nanf(""); }},
    {"NoSuchPrecision",
     kInvalid,
     {"precision"},
     [](Call& c) { c.options.precision = static_cast<Precision>(9); }},
    {"NoSuchMask",
     kInvalid,
     {"mask"},
     [](Call& c) { c.options.mask.kind = static_cast<Mask::Kind>(77); }},
    {"NoSuchGranularity",
     kInvalid,
     {"k.scale"},
     [](Call& c) { c.k.scale.granularity = static_cast<Scale::Granularity>(99); }},
    {"NoSuchLayout",
     kInvalid,
     {"v.layout"},
     [](Call& c) { c.v.layout.kind = static_cast<SequenceLayout::Kind>(50); }},
    {"FloatQ", kInvalid, {"q.dtype"}, [](Call& c) { c.q.dtype = DataType::float16; }},
    {"FloatV", kInvalid, {"v.dtype"}, [](Call& c) { c.v.dtype = DataType::float32; }},
    {"NoSuchDtype", kInvalid, {"k.dtype"}, [](Call& c) { c.k.dtype = static_cast<DataType>(200); }},
    {"Uint8Out", kInvalid, {"out.dtype"}, [](Call& c) { c.out.dtype = DataType::uint8; }},
    {"NoSuchOutDtype",
     kInvalid,
     {"out.dtype"},
     [](Call& c) { c.out.dtype = static_cast<DataType>(200); }},
};

constexpr ErrorCode kNotYet = ErrorCode::unsupported;
const float kOneFloat[] = {1.0F};
const std::uint8_t kZeroPoints[] = {7, 7, 7, 7};
const std::int32_t kOffsets[] = {0, 3};

const Misuse kUnimplemented[] = {
    {"Window", kNotYet, {"mask", "window"}, [](Call& c) { c.options.mask = Mask::window(100, 0); }},
    {"BooleanMask",
     kNotYet,
     {"mask", "boolean"},
     [](Call& c) {
       c.options.mask.kind = Mask::Kind::boolean;
       c.options.mask.data = c.bytes.data();
     }},
    {"AdditiveMask",
     kNotYet,
     {"mask", "additive"},
     [](Call& c) {
       c.options.mask.kind = Mask::Kind::additive;
       c.options.mask.data = kOneFloat;
     }},
    {"SoftCap", kNotYet, {"soft_cap"}, [](Call& c) { c.options.soft_cap = 30.0F; }},
    {"Alibi", kNotYet, {"alibi"}, [](Call& c) { c.options.alibi_slopes = kOneFloat; }},
    {"Sinks", kNotYet, {"sinks"}, [](Call& c) { c.options.sinks = kOneFloat; }},
    {"PerTensor",
     kNotYet,
     {"scale per tensor"},
     [](Call& c) { c.q.scale = per_tensor(c.scales.data()); }},
    {"PerBatchHead",
     kNotYet,
     {"scale per batch"},
     [](Call& c) { c.k.scale = per_batch_head(c.scales.data()); }},
    {"PerToken",
     kNotYet,
     {"scale per token"},
     [](Call& c) { c.v.scale = per_token(c.scales.data()); }},
    {"PerBlock",
     kNotYet,
     {"scale per block"},
     [](Call& c) { c.k.scale = per_block(c.scales.data(), 64); }},
    {"PerChannel",
     kNotYet,
     {"scale per channel"},
     [](Call& c) { c.v.scale = per_channel(c.scales.data()); }},
    {"Uint8",
     kNotYet,
     {"uint8"},
     [](Call& c) {
       c.k = Int8Tensor(reinterpret_cast<const std::uint8_t*>(c.bytes.data()), c.k.shape, c.k.scale,
                        kZeroPoints);
     }},
    {"ZeroPointOfInt8", kInvalid, {"q.zero_point"}, [](Call& c) { c.q.zero_point = kZeroPoints; }},
    {"HeadDimOfV",
     kNotYet,
     {"head_dim of v"},
     [](Call& c) { c.v.shape.head_dim = c.out.shape.head_dim = 8; }},
    {"Float16Out", kNotYet, {"float16"}, [](Call& c) { c.out.dtype = DataType::float16; }},
    {"Bfloat16Out", kNotYet, {"bfloat16"}, [](Call& c) { c.out.dtype = DataType::bfloat16; }},
    {"Int8Out",
     kNotYet,
     {"int8"},
     [](Call& c) {
       c.out.dtype = DataType::int8;
       c.out.scale = per_head(c.scales.data());
     }},
    {"Packed",
     kNotYet,
     {"packed"},
     [](Call& c) {
       c.q.layout.kind = SequenceLayout::Kind::packed;
       c.q.layout.sequences = 1;
       c.q.layout.offsets = kOffsets;
     }},
    {"Paged",
     kNotYet,
     {"paged"},
     [](Call& c) {
       c.k.layout.kind = SequenceLayout::Kind::paged;
       c.k.layout.sequences = 1;
       c.k.layout.lengths = kOffsets;
       c.k.layout.block_table = kOffsets;
     }},
};

const Misuse kKernels[] = {
    {"UnknownKernel",
     ErrorCode::unknown_kernel,
     {"cpu/avx3", "cpu/scalar", "cuda/sm80"},
     [](Call& c) { c.options.kernel = "cpu/avx3"; }},
    {"KernelOfAnotherDevice",
     ErrorCode::kernel_unusable,
     {"cuda/sm80", "CUDA", "cpu/scalar"},
     [](Call& c) { c.options.kernel = "cuda/sm80"; }},
    {"ForcedKernelWithoutTheFeature",
     ErrorCode::kernel_unusable,
     {"cpu/scalar", "soft_cap"},
     [](Call& c) {
       c.options.kernel = "cpu/scalar";
       c.options.soft_cap = 1.0F;
     }},
};

INSTANTIATE_TEST_SUITE_P(Pointers, Errors, testing::ValuesIn(kPointers), misuse_name);
INSTANTIATE_TEST_SUITE_P(Shapes, Errors, testing::ValuesIn(kShapes), misuse_name);
INSTANTIATE_TEST_SUITE_P(Strides, Errors, testing::ValuesIn(kStrides), misuse_name);
INSTANTIATE_TEST_SUITE_P(Options, Errors, testing::ValuesIn(kOptions), misuse_name);
INSTANTIATE_TEST_SUITE_P(Unimplemented, Errors, testing::ValuesIn(kUnimplemented), misuse_name);
INSTANTIATE_TEST_SUITE_P(Forced, Errors, testing::ValuesIn(kKernels), misuse_name);

void expect_untouched(Call& call) {
  for (const float x : call.out_memory.take("out")) {
    ASSERT_TRUE(is_unwritten(x)) << "out was written";
  }
  for (const float x : call.lse_memory.take("lse")) {
    ASSERT_TRUE(is_unwritten(x)) << "lse was written";
  }
}

TEST_P(Errors, IsRefusedByNameAndNothingIsWritten) {
  Call call;
  GetParam().spoil(call);
  try {
    forward(call.device, call.q, call.k, call.v, call.out, call.options);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), GetParam().code) << error.what();
    for (const std::string& text : GetParam().mentions) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
          << "\"" << text << "\" is missing in: " << error.what();
    }
    EXPECT_NE(std::string(error.what()).find("llowed"), std::string::npos)
        << "what is allowed is missing in: " << error.what();
  }
  expect_untouched(call);
}

TEST(ErrorsInGeneral, TheUnspoiledCallRuns) {
  Call call;
  forward(call.device, call.q, call.k, call.v, call.out, call.options);
  for (const float x : call.out_memory.take("out")) ASSERT_FALSE(is_unwritten(x));
}

TEST(ErrorsInGeneral, ErrorIsARuntimeError) {
  Call call;
  call.options.threads = -1;
  EXPECT_THROW(forward(call.device, call.q, call.k, call.v, call.out, call.options),
               std::runtime_error);
}

TEST(ErrorsInGeneral, TheFlatCallChecksItsArguments) {
  std::array<std::int8_t, 64> data{};
  std::array<float, 4> scale{};
  std::array<float, 64> out{};
  const auto call = [&](const std::int8_t* q, std::int64_t heads, std::int64_t head_dim) {
    forward(Device::cpu(), q, data.data(), data.data(), scale.data(), scale.data(), scale.data(),
            out.data(), 1, 2, heads, head_dim);
  };
  EXPECT_NO_THROW(call(data.data(), 2, 16));
  EXPECT_THROW(call(nullptr, 2, 16), Error);
  EXPECT_THROW(call(data.data(), -2, 16), Error);
  EXPECT_THROW(call(data.data(), 2, 0), Error);
  EXPECT_THROW(call(data.data(), std::int64_t{1} << 62, 16), Error);
}

TEST(ErrorsInGeneral, WorkspaceBytesAndExplainRefuseTheSame) {
  Call call;
  call.k.shape.head_dim = 8;
  EXPECT_THROW(workspace_bytes(call.device, call.q, call.k, call.v, call.out, call.options), Error);
  EXPECT_THROW(explain(call.device, call.q, call.k, call.v, call.out, call.options), Error);
}

TEST(ErrorsInGeneral, ExplainNamesWhatForwardWouldThrow) {
  Call call;
  call.options.soft_cap = 1.0F;
  const Explanation explanation =
      explain(call.device, call.q, call.k, call.v, call.out, call.options);
  EXPECT_EQ(explanation.kernel, "");
  try {
    forward(call.device, call.q, call.k, call.v, call.out, call.options);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(explanation.error, error.what());
  }
}

}  // namespace
}  // namespace qattn::test
