// float16 and bfloat16 outputs: the float32 result, rounded once; other memory stays as it was.
#include <cmath>
#include <limits>
#include <vector>

#include "support/call.hpp"
#include "support/device_inputs.hpp"
#include "support/kernel_param.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"
#include "support/short_floats.hpp"

namespace qattn::test {
namespace {

using verify::Dimensions;
using verify::HostProblem;
using verify::Result;

constexpr DataType kTypes[] = {DataType::float16, DataType::bfloat16};
// A NaN of both types that no arithmetic yields.
constexpr std::uint16_t kFill = 0xFFAD;
constexpr std::int64_t kBorder = 128;

struct ShortRun {
  DataType type = DataType::float16;
  Precision precision = Precision::high;
  std::int64_t offset = 0;  // elements from an aligned address
  Strides strides;          // of out; all 0: contiguous
  bool host_memory = false;
};

struct ShortResult {
  std::vector<std::uint16_t> out;
  std::vector<float> lse;
};

class ShortOutputs : public KernelTest {
 protected:
  bool is_offered() const { return !kernel().is_cpu_tier(); }

  // Of the elements of `arena` those of out, which are then filled like the rest.
  static std::vector<std::uint16_t> take(std::vector<std::uint16_t>& arena, const Shape& shape,
                                         const Strides& strides, std::int64_t offset) {
    std::vector<std::uint16_t> values;
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t i = 0; i < shape.seq; ++i) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
          for (std::int64_t d = 0; d < shape.head_dim; ++d) {
            std::uint16_t& x = arena[static_cast<std::size_t>(
                offset + b * strides.batch + i * strides.seq + h * strides.heads + d)];
            values.push_back(x);
            x = kFill;
          }
        }
      }
    }
    return values;
  }

  ShortResult run(const HostProblem& problem, const ShortRun& how) {
    const Shape shape = problem.out_shape();
    const Strides strides = how.strides.heads == 0 ? contiguous_strides(shape) : how.strides;
    const std::int64_t span = (shape.batch - 1) * strides.batch + (shape.seq - 1) * strides.seq +
                              (shape.heads - 1) * strides.heads + shape.head_dim;
    const std::int64_t offset = kBorder + how.offset;
    std::vector<std::uint16_t> arena(static_cast<std::size_t>(offset + span + kBorder), kFill);
    const Device memory = how.host_memory ? Device::cpu() : kernel().device;
    const DeviceInputs inputs(memory, problem);
    Buffer<std::uint16_t> out(memory, arena.data(), arena.size());
    BorderedFloats lse(memory, problem.lse_size());
    Options options = problem.options(how.precision, kernel().name);
    options.lse = lse.data();
    forward(kernel().device, inputs.q(), inputs.k(), inputs.v(),
            OutputTensor(out.data() + offset, how.type, shape, strides), options);
    out.copy_to(arena.data());
    ShortResult result;
    result.out = take(arena, shape, strides, offset);
    result.lse = lse.take("lse");
    for (std::size_t i = 0; i < arena.size(); ++i) {
      if (arena[i] == kFill) continue;
      ADD_FAILURE() << "written beside out, at " << static_cast<std::int64_t>(i) - offset;
      break;
    }
    return result;
  }

  // A CUDA kernel rounds its float32 result; the reference its float64 result, of which its float32
  // result is a neighbour.
  bool is_rounded(std::uint16_t got, float x, DataType type) const {
    if (std::isnan(x)) return is_short_nan(got, type);
    if (got == nearest_short(x, type)) return true;
    if (!kernel().is_reference()) return false;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    return got == nearest_short(std::nextafter(x, kInfinity), type) ||
           got == nearest_short(std::nextafter(x, -kInfinity), type);
  }

  void check(const HostProblem& problem, ShortRun how) {
    RunSettings settings;
    settings.precision = how.precision;
    const Result floats = run_guarded(kernel(), problem, settings);
    for (const DataType type : kTypes) {
      how.type = type;
      SCOPED_TRACE(describe(problem, how.precision) +
                   (type == DataType::float16 ? " float16" : " bfloat16") + " offset " +
                   std::to_string(how.offset) + (how.host_memory ? " in host memory" : ""));
      const ShortResult got = run(problem, how);
      expect_same_bits(got.lse, floats.lse, "lse");
      for (std::size_t i = 0; i < got.out.size(); ++i) {
        if (is_rounded(got.out[i], floats.out[i], type)) continue;
        ADD_FAILURE() << "out[" << i << "] is 0x" << std::hex << got.out[i] << std::dec << ", "
                      << short_value(got.out[i], type) << ", of " << floats.out[i] << " (0x"
                      << std::hex << bits_of(floats.out[i]) << ")\n"
                      << reproduce();
        break;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, ShortOutputs, testing::ValuesIn(all_kernels()), test_name);

TEST_P(ShortOutputs, KernelsWithoutThemNameTheArgument) {
  if (is_offered()) return;
  for (const DataType type : kTypes) {
    Call call;
    call.out.dtype = type;
    call.options.kernel = kernel().name;
    try {
      forward(call.device, call.q, call.k, call.v, call.out, call.options);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.code(), ErrorCode::kernel_unusable) << text;
      EXPECT_NE(text.find(type == DataType::float16 ? "dtype float16 of out (allowed: float32)"
                                                    : "dtype bfloat16 of out (allowed: float32)"),
                std::string::npos)
          << text;
    }
  }
}

TEST_P(ShortOutputs, EveryKindOfHeadDim) {
  if (!is_offered()) return;
  std::uint64_t index = 0;
  for (const std::int64_t head_dim :
       {1, 2, 3, 4, 7, 16, 31, 32, 33, 64, 65, 66, 80, 96, 128, 130, 192, 255, 256}) {
    for (const Precision precision : {Precision::high, Precision::fast}) {
      ShortRun how;
      how.precision = precision;
      check(
          verify::random_problem({2, 70, 139, 4, 2, head_dim}, Mask::causal(), case_seed(index++)),
          how);
    }
  }
}

// Lengths on both sides of where a kernel may take, cut or join keys in another way.
TEST_P(ShortOutputs, FewRows) {
  if (!is_offered()) return;
  std::uint64_t index = 100;
  for (const std::int64_t head_dim : {7, 32, 33, 64, 66, 96, 130, 128, 192, 255, 256}) {
    for (const std::int64_t seq_k : {100, 300, 1300, 5000}) {
      for (const std::int64_t offset : {0, 1, 2}) {
        ShortRun how;
        how.offset = offset;
        check(verify::random_problem({2, 3, seq_k, 4, 2, head_dim}, Mask::causal(),
                                     case_seed(index++)),
              how);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(ShortOutputs, EveryAlignmentAndStride) {
  if (!is_offered()) return;
  std::uint64_t index = 0;
  for (const std::int64_t head_dim : {32, 36, 61, 128}) {
    const HostProblem problem =
        verify::random_problem({2, 19, 65, 4, 2, head_dim}, Mask::causal(), case_seed(index++));
    const Shape shape = problem.out_shape();
    for (const std::int64_t pad : {0, 1, 2, 4}) {
      for (std::int64_t offset = 0; offset < 9; ++offset) {
        ShortRun how;
        how.offset = offset;
        how.strides.heads = head_dim + pad;
        how.strides.seq = shape.heads * how.strides.heads + 3 * pad;
        how.strides.batch = shape.seq * how.strides.seq + pad;
        check(problem, how);
        if (HasFailure()) return;
      }
    }
    ShortRun heads_first;
    heads_first.strides = {shape.heads * shape.seq * head_dim, head_dim, shape.seq * head_dim};
    check(problem, heads_first);
  }
}

TEST_P(ShortOutputs, EveryKindOfValue) {
  if (!is_offered()) return;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::uint64_t index = 0;
  // Past the largest float16 and bfloat16, among the subnormal ones of both, neither at all.
  for (const float v_scale : {1.0F, 516.0F, 1e6F, 2.67e36F, 3e38F, -4e-6F, 2e-9F, 3e-38F, 1e-40F,
                              0.0F, kInfinity, std::nanf("")}) {
    HostProblem problem =
        verify::random_problem({1, 40, 33, 2, 2, 40}, Mask::causal(), case_seed(index++), 3.0);
    problem.v_scale[0] = v_scale;
    check(problem, {});
  }
}

TEST_P(ShortOutputs, MemoryOfTheHost) {
  if (!is_offered() || kernel().on_cpu()) return;
  ShortRun how;
  how.host_memory = true;
  for (const std::int64_t head_dim : {33, 64}) {
    const HostProblem problem =
        verify::random_problem({3, 65, 300, 4, 2, head_dim}, Mask::causal(), case_seed(0));
    how.strides = {};
    check(problem, how);
    how.offset = 1;
    how.strides.heads = head_dim + 3;
    how.strides.seq = 4 * how.strides.heads + 1;
    how.strides.batch = 65 * how.strides.seq;
    check(problem, how);
  }
}

// 3 * (1 + 2731 * 2^-23) = 3 + 2^-10 + 2^-23: rounded to float32 first it is a tie between two
// float16, which goes down; it lies above the tie.
TEST(ShortOutputsOfTheReference, AreRoundedOnce) {
  HostProblem problem = blank_problem({1, 1, 1, 1, 1, 1}, Mask::full());
  problem.v[0] = 3;
  problem.v_scale[0] = 1 + std::ldexp(2731.0F, -23);
  std::uint16_t out = 0;
  forward(Device::cpu(), problem.q_view(), problem.k_view(), problem.v_view(),
          OutputTensor(&out, DataType::float16, problem.out_shape()),
          problem.options(Precision::high, "reference/float64"));
  EXPECT_EQ(out, nearest_short(3 + std::ldexp(1.0, -9), DataType::float16));
}

TEST(ShortOutputsInGeneral, ElementsCountWithTheirSize) {
  Call call;
  call.options.kernel = "reference/float64";
  call.out.dtype = DataType::bfloat16;
  const auto run = [&] { forward(call.device, call.q, call.k, call.v, call.out, call.options); };
  // The second half of the memory of as many floats is free for an input, up to the first half.
  call.q.data = call.out_memory.data() + 384 / 2;
  EXPECT_NO_THROW(run());
  call.q.data = reinterpret_cast<const std::int8_t*>(call.out_memory.data() + 384 / 2) - 1;
  EXPECT_THROW(run(), Error);
  call.q.data = call.bytes.data();
  call.out.data = static_cast<std::byte*>(call.out.data) + 2;
  EXPECT_NO_THROW(run());
  call.out.data = static_cast<std::byte*>(call.out.data) + 1;
  try {
    run();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("out.data is not 2-byte aligned"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace qattn::test
