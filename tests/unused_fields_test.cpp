// Fields that the chosen kind of mask, scale, layout or output does not read: once set they are
// refused, never ignored.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "support/call.hpp"
#include "support/run.hpp"

namespace qattn::test {
namespace {

struct Unused {
  const char* name;
  std::vector<std::string> mentions;  // how the message begins, and what it must name
  std::function<void(Call&)> set;
};
void PrintTo(const Unused& unused, std::ostream* stream) { *stream << unused.name; }

const float kOneFloat[] = {1.0F};
const std::int32_t kOffsets[] = {0, 3};

const Unused kUnused[] = {
    {"WindowLeftOfCausal",
     {"options.mask.window_left is 100", "causal"},
     [](Call& c) { c.options.mask.window_left = 100; }},
    {"WindowLeftZeroOfCausal",
     {"options.mask.window_left is 0", "causal"},
     [](Call& c) { c.options.mask.window_left = 0; }},
    {"WindowRightOfCausal",
     {"options.mask.window_right is 2", "causal"},
     [](Call& c) { c.options.mask.window_right = 2; }},
    {"WindowLeftOfFull",
     {"options.mask.window_left is 7", "full"},
     [](Call& c) {
       c.options.mask = Mask::full();
       c.options.mask.window_left = 7;
     }},
    {"WindowRightOfFull",
     {"options.mask.window_right is 1", "full"},
     [](Call& c) {
       c.options.mask = Mask::full();
       c.options.mask.window_right = 1;
     }},
    {"WindowOfBoolean",
     {"options.mask.window_left is 7", "boolean"},
     [](Call& c) {
       c.options.mask.kind = Mask::Kind::boolean;
       c.options.mask.data = c.bytes.data();
       c.options.mask.window_left = 7;
     }},
    {"DataOfCausal",
     {"options.mask.data", "causal"},
     [](Call& c) { c.options.mask.data = c.bytes.data(); }},
    {"DataOfFull",
     {"options.mask.data", "full"},
     [](Call& c) {
       c.options.mask = Mask::full();
       c.options.mask.data = kOneFloat;
     }},
    {"DataOfWindow",
     {"options.mask.data", "window"},
     [](Call& c) {
       c.options.mask = Mask::window(4, 0);
       c.options.mask.data = kOneFloat;
     }},
    {"MaskBatchStride",
     {"options.mask.batch_stride is 9"},
     [](Call& c) { c.options.mask.batch_stride = 9; }},
    {"MaskHeadStride",
     {"options.mask.head_stride is -4"},
     [](Call& c) { c.options.mask.head_stride = -4; }},
    {"MaskQueryStride",
     {"options.mask.query_stride is 5"},
     [](Call& c) { c.options.mask.query_stride = 5; }},
    {"BlockTokensPerHead",
     {"k.scale.block_tokens is 64", "per_block"},
     [](Call& c) { c.k.scale.block_tokens = 64; }},
    {"SequencesOfDense",
     {"q.layout.sequences is 2", "dense"},
     [](Call& c) { c.q.layout.sequences = 2; }},
    {"OffsetsOfDense",
     {"v.layout.offsets", "dense"},
     [](Call& c) { c.v.layout.offsets = kOffsets; }},
    {"LengthsOfDense",
     {"k.layout.lengths", "dense"},
     [](Call& c) { c.k.layout.lengths = kOffsets; }},
    {"BlockTableOfDense",
     {"k.layout.block_table", "dense"},
     [](Call& c) { c.k.layout.block_table = kOffsets; }},
    {"BlockTableStrideOfDense",
     {"k.layout.block_table_stride is 3", "dense"},
     [](Call& c) { c.k.layout.block_table_stride = 3; }},
    {"BlockTableOfPacked",
     {"q.layout.block_table", "packed"},
     [](Call& c) {
       c.q.layout = {SequenceLayout::Kind::packed, 1, kOffsets, nullptr, kOffsets, 0};
     }},
    {"OffsetsOfPaged",
     {"q.layout.offsets", "paged"},
     [](Call& c) {
       c.q.layout = {SequenceLayout::Kind::paged, 1, kOffsets, kOffsets, kOffsets, 1};
     }},
    {"ContextWithoutExecutor",
     {"options.executor.context", "run null"},
     [](Call& c) { c.options.executor.context = &c; }},
    {"ScaleOfFloatOutput",
     {"out.scale.data", "float32"},
     [](Call& c) { c.out.scale.data = c.scales.data(); }},
    {"BlockTokensOfFloatOutput",
     {"out.scale.block_tokens is 8"},
     [](Call& c) { c.out.scale.block_tokens = 8; }},
};

class UnusedFields : public testing::TestWithParam<Unused> {};
std::string unused_name(const testing::TestParamInfo<Unused>& tested) { return tested.param.name; }
INSTANTIATE_TEST_SUITE_P(Each, UnusedFields, testing::ValuesIn(kUnused), unused_name);

TEST_P(UnusedFields, AreRefusedByNameAndNothingIsWritten) {
  Call call;
  GetParam().set(call);
  try {
    forward(call.device, call.q, call.k, call.v, call.out, call.options);
    ADD_FAILURE() << "ignored";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << message;
    EXPECT_EQ(message.rfind(GetParam().mentions.front(), 0), 0U) << message;
    for (const std::string& text : GetParam().mentions) {
      EXPECT_NE(message.find(text), std::string::npos) << text << " is missing in: " << message;
    }
    EXPECT_NE(message.find("allowed"), std::string::npos) << message;
  }
  for (const float x : call.out_memory.take("out")) ASSERT_TRUE(is_unwritten(x));
}

TEST(UnusedFieldsInGeneral, BoundsThatExcludeNothingAreNoWindow) {
  for (const std::int64_t left : {Mask::kUnlimited, std::int64_t{-1}, std::int64_t{1} << 40}) {
    for (const std::int64_t right : {std::int64_t{0}, Mask::kUnlimited, std::int64_t{-1}}) {
      for (const Mask::Kind kind : {Mask::Kind::causal, Mask::Kind::full}) {
        Call call;
        call.options.mask.kind = kind;
        call.options.mask.window_left = left;
        call.options.mask.window_right = right;
        EXPECT_NO_THROW(forward(call.device, call.q, call.k, call.v, call.out, call.options))
            << left << " " << right;
      }
    }
  }
}

TEST(UnusedFieldsInGeneral, QuantizeRefusesThemToo) {
  const float input[] = {1.0F, 2.0F};
  std::int8_t values[] = {0, 0};
  float scale = 0;
  QuantizedTensor out(values, {1, 1, 1, 2}, &scale);
  out.block_tokens = 64;
  try {
    quantize(Device::cpu(), FloatTensor(input, {1, 1, 1, 2}), out);
    ADD_FAILURE() << "ignored";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(std::string(error.what()).rfind("out.block_tokens is 64", 0), 0U) << error.what();
  }
  EXPECT_EQ(scale, 0);
}

}  // namespace
}  // namespace qattn::test
