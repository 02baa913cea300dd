// The command's file reading and quantising, on good files and on everything else.
#include "command/npy.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <vector>

#include "command/input_error.hpp"
#include "command/json.hpp"
#include "command/quantize.hpp"
#include "qattn/qattn.hpp"
#include "verify/distributions.hpp"

namespace qattn::command {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A folder of its own for each test, gone afterwards.
class NpyTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& content) const {
    std::string file = path("file.npy");
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

  // What the reader says about a file, without its path.
  std::string complaint(const std::string& content) const {
    const std::string file = write(content);
    try {
      read_npy(file);
    } catch (const InputError& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.rfind(file + ": ", 0), 0U) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      return message.substr(std::min(message.size(), file.size() + 2));
    }
    return "accepted";
  }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      ("qattn_npy_test_" + std::to_string(getpid()) + "_" +
       testing::UnitTest::GetInstance()->current_test_info()->name());
};

std::string little_endian(std::size_t value, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

std::string with_header(const std::string& header, const std::string& data, int major = 1) {
  return std::string("\x93NUMPY") + static_cast<char>(major) + '\0' +
         little_endian(header.size(), major == 1 ? 2 : 4) + header + data;
}

std::string file_of(const std::string& descr, const std::string& shape, std::size_t bytes) {
  return with_header(
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n",
      std::string(bytes, '\1'));
}

TEST_F(NpyTest, WrittenFileReadsBack) {
  const std::vector<float> values = {1.5F, -2.0F, 0.0F, kInfinity, 3e38F, 1e-45F};
  write_npy(path("a.npy"), {1, 2, 3}, values);
  const NpyArray array = read_npy(path("a.npy"));
  EXPECT_EQ(array.type, NpyType::float32);
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(array.float_values(), values);
  // NumPy aligns the data to 64 bytes, so that it can be mapped.
  EXPECT_EQ((std::filesystem::file_size(path("a.npy")) - sizeof(float) * values.size()) % 64, 0U);
}

TEST_F(NpyTest, AllVersionsTypesAndWaysToWriteAHeader) {
  for (const int major : {1, 2, 3}) {
    const std::string file = write(with_header(
        "{\"shape\":(2,1),'fortran_order' : False,  'descr': '|i1'}   \n", "\x80\x7f", major));
    EXPECT_EQ(read_npy(file).int8_values(), (std::vector<std::int8_t>{-128, 127})) << major;
  }
  EXPECT_EQ(read_npy(write(file_of("<f4", "()", 4))).size(), 1);
  EXPECT_EQ(read_npy(write(file_of("<f4", "(0, 5)", 0))).size(), 0);
  EXPECT_EQ(read_npy(write(file_of("|i1", "(3,)", 3))).size(), 3);
}

TEST_F(NpyTest, Float16IsExact) {
  const std::pair<std::uint16_t, float> cases[] = {
      {0x0000, 0.0F},      {0x8000, -0.0F},      {0x3c00, 1.0F},       {0xc500, -5.0F},
      {0x7bff, 65504.0F},  {0x0001, 0x1p-24F},   {0x03ff, 0x3ffp-24F}, {0x0400, 0x1p-14F},
      {0x7c00, kInfinity}, {0x3555, 0x1.554p-2F}};
  for (const auto& [bits, value] : cases) {
    NpyArray array;
    array.type = NpyType::float16;
    array.bytes.resize(2);
    std::memcpy(array.bytes.data(), &bits, 2);
    EXPECT_EQ(array.float_values().at(0), value) << std::hex << bits;
    EXPECT_EQ(std::signbit(array.float_values().at(0)), std::signbit(value));
  }
}

TEST_F(NpyTest, BadFilesAreToldApart) {
  const auto says = [&](const std::string& content, const std::string& part) {
    const std::string what = complaint(content);
    EXPECT_NE(what.find(part), std::string::npos) << "said: " << what << "; expected: " << part;
  };
  says("", "is not a .npy file");
  says("\x93NUMP", "is not a .npy file");
  says("PK\3\4 this is a zip archive", "is not a .npy file");
  says(std::string("\x93NUMPY\1", 7), "is truncated: its format version");
  says(std::string("\x93NUMPY\1\0\x10", 9), "is truncated: its header length");
  says(std::string("\x93NUMPY\1\0\x76\0{'descr'", 18), "is truncated: its header takes 118");
  says(std::string("\x93NUMPY\4\0\0\0\0\0", 12), "format version 4.0");
  says(std::string("\x93NUMPY\1\1\0\0", 10), "format version 1.1");
  says(std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12), "header of 4294967295 bytes");
  says(file_of("<f4", "(2, 3)", 23), "is truncated: its data takes 24 bytes, the file has 23");
  says(file_of("<f4", "(2, 3)", 25), "is longer than its shape (2, 3) of float32");
  says(file_of("<f4", "(1000000, 1000000)", 8), "is truncated: its data");
  says(file_of("<f4", "(4294967296, 4294967296)", 8), "more than fits memory");
  says(file_of("<f4", "(9223372036854775807,)", 8), "more than fits memory");
  says(file_of("<f4", "(99999999999999999999,)", 8), "a shape that is not made of sizes");
  says(file_of("<f4", "(-1,)", 8), "a shape that is not made of sizes");
  says(file_of("<f4", "(2)", 8), "a shape that is no tuple");
  says(file_of("<f4", "2", 8), "no '(' where one belongs");
  says(file_of("<f4", "(2,", 8), "a shape that is not made of sizes");
  says(file_of("<f8", "(1,)", 8), "has dtype '<f8'");
  says(file_of("<i4", "(2,)", 8), "has dtype '<i4'");
  says(file_of("|u1", "(8,)", 8), "has dtype '|u1'");
  says(file_of("\n\x1b[2J", "(8,)", 8), "has dtype '??[2J'");
  says(file_of("", "(8,)", 8), "has dtype ''");
  says(file_of(">f4", "(2,)", 8), "is big-endian");
  says(file_of("|O", "(1,)", 8), "holds Python objects");
  says(with_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "12345678"),
       "its elements are records");
  says(with_header("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1)}", "12345678"),
       "is in Fortran order");
  says(with_header("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "12345678"),
       "a fortran_order that is neither True nor False");
  says(with_header("{'descr': '<f4', 'shape': (2,)}", "12345678"), "no fortran_order");
  says(with_header("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", ""),
       "an unexpected or repeated key");
  says(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} + x", "12345678"),
       "something after its dictionary");
  says(with_header("", "12345678"), "no '{' where one belongs");
  says(with_header("{'descr", "12345678"), "a string without an end");
}

TEST_F(NpyTest, FilesThatCannotBeOpenedOrRead) {
  EXPECT_THROW(read_npy(path("missing.npy")), InputError);
  EXPECT_THROW(read_npy(path("")), InputError);  // the folder itself
  EXPECT_THROW(write_npy(path("no/such/folder.npy"), {1}, {1.0F}), InputError);
  if (std::filesystem::exists("/dev/full")) {
    EXPECT_THROW(write_npy("/dev/full", {1}, {1.0F}), InputError);
  }
}

// Whatever the bytes, the reader ends in an array that fits the file or in an InputError.
TEST_F(NpyTest, DamagedFilesNeverCrash) {
  const std::string good = file_of("<f2", "(2, 3, 4)", 48);
  ASSERT_EQ(complaint(good), "accepted");
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_NE(complaint(good.substr(0, length)), "accepted") << length;
  }
  verify::Random random(1);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bad = good;
    for (std::uint64_t i = 0; i <= random.next() % 3; ++i) {
      // Mostly the header: the data says nothing.
      bad[random.next() % (round % 8 == 0 ? bad.size() : bad.size() - 48)] =
          static_cast<char>(random.next());
    }
    if (complaint(bad) != "accepted") continue;
    ++accepted;
    const NpyArray array = read_npy(path("file.npy"));
    std::int64_t size = 1;
    for (const std::int64_t extent : array.shape) size *= extent;
    EXPECT_EQ(array.size(), size);
    EXPECT_EQ(array.bytes.size(), 48U);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 2000);
}

TEST(Quantize, RoundsToNearestEvenPerHead) {
  // (batch 1, seq 2, heads 2, head_dim 3); largest magnitudes 127 and 12.7.
  const std::vector<float> tensor = {127.0F, 0.5F, 1.5F,  12.7F, 0.1F,  -0.04F,
                                     -2.5F,  2.6F, -0.5F, -5.0F, 12.0F, 0.0F};
  const Quantized result = quantize(tensor, 2, 3, "t");
  ASSERT_EQ(result.scales.size(), 2U);
  EXPECT_EQ(result.scales[0], 1.0F);
  EXPECT_FLOAT_EQ(result.scales[1], 0.1F);
  EXPECT_EQ(result.values, (std::vector<std::int8_t>{127, 0, 2, 127, 1, 0, -2, 3, 0, -50, 120, 0}));
}

TEST(Quantize, ExtremesStayWithinHalfAStep) {
  const float denormal = std::numeric_limits<float>::denorm_min();
  for (const float largest : {std::numeric_limits<float>::max(), 1.0F, 1e-37F, 188 * denormal,
                              63 * denormal, denormal, 0.0F}) {
    const Quantized result = quantize({largest, -largest, largest / 2}, 1, 3, "t");
    const double scale = result.scales.at(0);
    EXPECT_TRUE(std::isfinite(scale) && scale > 0) << largest;
    for (int i = 0; i < 3; ++i) {
      const double value = i == 0 ? largest : i == 1 ? -largest : largest / 2;
      EXPECT_LE(std::abs(result.values[static_cast<std::size_t>(i)] * scale - value),
                scale * 0.5000001)
          << largest << " entry " << i;
    }
  }
  EXPECT_EQ(quantize({0.0F, 0.0F}, 1, 2, "t").values, (std::vector<std::int8_t>{0, 0}));
}

// What a program that calls the library gets for the same tensor.
TEST(Quantize, GivesTheBitsOfTheLibrary) {
  const std::int64_t batch_seq = 100000, heads = 3, head_dim = 5;
  std::vector<float> tensor(static_cast<std::size_t>(batch_seq * heads * head_dim));
  std::mt19937 generator(11);
  std::normal_distribution<float> normal;
  for (float& x : tensor) x = normal(generator);
  std::vector<std::int8_t> values(tensor.size());
  std::vector<float> scales(static_cast<std::size_t>(heads));
  qattn::quantize(Device::cpu(), tensor.data(), values.data(), scales.data(), 1, batch_seq, heads,
                  head_dim);
  const Quantized result = quantize(tensor, heads, head_dim, "t");
  EXPECT_EQ(result.scales, scales);
  EXPECT_TRUE(result.values == values) << "too many values to print";
}

TEST(Quantize, NotANumberNamesFileAndHead) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    try {
      quantize({1.0F, 2.0F, 3.0F, bad}, 2, 2, "k.npy");
      ADD_FAILURE() << bad << " was accepted";
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).rfind("k.npy: head 1 holds ", 0), 0U) << error.what();
      EXPECT_NE(std::string(error.what()).find("at element 3 "), std::string::npos) << error.what();
    }
  }
}

TEST(JsonWriter, EscapesAndNests) {
  Json json;
  json.begin_object().member("a \"b\"\\\n\x01", "x").member("t", true).member("n", -3);
  json.member("d", 0.1).member("inf", std::numeric_limits<double>::infinity());
  json.key("list").begin_array().value(1).begin_object().end_object().begin_array().end_array();
  json.end_array().end_object();
  EXPECT_EQ(json.text(),
            "{\"a \\\"b\\\"\\\\\\u000a\\u0001\": \"x\", \"t\": true, \"n\": -3, \"d\": 0.1, "
            "\"inf\": null, \"list\": [1, {}, []]}");
}

}  // namespace
}  // namespace qattn::command
