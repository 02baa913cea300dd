// Extents: head_dim, sequence lengths on and off every tile size, seq_q != seq_k, grouped heads.
#include <cmath>
#include <utility>

#include "support/kernel_param.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"

namespace qattn::test {
namespace {

using verify::Dimensions;
using verify::HostProblem;
using verify::Result;

constexpr Precision kPrecisions[] = {Precision::high, Precision::fast};

class Shapes : public KernelTest {
 protected:
  void check(const HostProblem& problem) { expect_oracle(kernel(), problem); }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Shapes, testing::ValuesIn(all_kernels()), test_name);

constexpr std::int64_t kHeadDims[] = {1,   2,   3,   4,   7,   8,   15,  16,  17,  24,  31, 32,
                                      33,  40,  48,  63,  64,  65,  72,  80,  95,  96,  97, 100,
                                      112, 127, 128, 129, 160, 191, 192, 193, 224, 255, 256};

TEST_P(Shapes, EveryKindOfHeadDim) {
  std::uint64_t index = 0;
  for (const std::int64_t head_dim : kHeadDims) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      check(verify::random_problem({2, 37, 53, 4, 2, head_dim}, mask, case_seed(index++)));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Shapes, WholeSignalInTheLastElement) {
  for (const std::int64_t head_dim : kHeadDims) {
    HostProblem problem = blank_problem({1, 3, 130, 1, 1, head_dim}, Mask::full());
    problem.softmax_scale = 1.0F / 1024;
    for (std::int64_t i = 0; i < 3; ++i) {
      q_row(&problem, 0, i, 0)[head_dim - 1] = static_cast<std::int8_t>(-128 + 100 * i);
    }
    for (std::int64_t j = 0; j < 130; ++j) {
      k_row(&problem, 0, j, 0)[head_dim - 1] = static_cast<std::int8_t>(j * 7 % 256 - 128);
      v_row(&problem, 0, j, 0)[head_dim - 1] = static_cast<std::int8_t>(j * 5 % 256 - 128);
    }
    check(problem);
  }
}

TEST_P(Shapes, LengthsOnAndOffTheTiles) {
  constexpr std::pair<std::int64_t, std::int64_t> kLengths[] = {
      {1, 1},     {1, 2},    {2, 1},    {2, 5},     {3, 5},     {5, 3},     {7, 3},
      {9, 9},     {12, 12},  {15, 17},  {16, 16},   {31, 33},   {33, 31},   {63, 65},
      {64, 64},   {65, 63},  {72, 72},  {127, 129}, {128, 128}, {129, 127}, {130, 257},
      {255, 256}, {257, 64}, {300, 44}, {1, 127},   {1, 128},   {1, 129},   {1, 1000},
      {4, 2047},  {2, 2048}, {3, 2049}, {1, 4097},  {17, 4100}, {503, 129}};
  std::uint64_t index = 0;
  for (const auto& [seq_q, seq_k] : kLengths) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      check(verify::random_problem({1, seq_q, seq_k, 2, 1, 40}, mask, case_seed(index++)));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Shapes, RaggedLongSequences) {
  check(verify::random_problem({1, 1001, 503, 1, 1, 64}, Mask::causal(), case_seed(0)));
  check(verify::random_problem({1, 503, 1001, 1, 1, 64}, Mask::full(), case_seed(1)));
}

TEST_P(Shapes, TheTinyShapeAndManyBatches) {
  check(verify::random_problem({2, 72, 72, 4, 4, 32}, Mask::causal(), case_seed(0)));
  check(verify::random_problem({97, 3, 5, 3, 1, 16}, Mask::causal(), case_seed(1)));
}

TEST_P(Shapes, CausalMaskIsAlignedWithTheLastKey) {
  for (const auto& [seq_q, seq_k] : {std::pair<std::int64_t, std::int64_t>{2, 5}, {1, 1000}}) {
    HostProblem problem = blank_problem({1, seq_q, seq_k, 1, 1, 8}, Mask::causal());
    for (std::int64_t j = 0; j < seq_k; ++j) fill(v_row(&problem, 0, j, 0), 8, j % 100);
    const Result result = run_guarded(kernel(), problem);
    for (std::int64_t i = 0; i < seq_q; ++i) {
      double mean = 0;  // equal scores: the mean over the visible keys
      const std::int64_t visible = i + seq_k - seq_q + 1;
      for (std::int64_t j = 0; j < visible; ++j) mean += static_cast<double>(j % 100);
      mean /= static_cast<double>(visible);
      for (std::int64_t d = 0; d < 8; ++d) {
        EXPECT_NEAR(out_row(problem, result, 0, i, 0)[d], mean, 1e-5 * mean) << "row " << i;
      }
      EXPECT_NEAR(lse_at(problem, result, 0, 0, i), std::log(static_cast<double>(visible)), 1e-5);
    }
  }
}

TEST_P(Shapes, DecodeSeesTheSameUnderCausalAndFull) {
  HostProblem problem = verify::random_problem({3, 1, 777, 6, 2, 64}, Mask::causal(), case_seed(0));
  const Result causal = run_guarded(kernel(), problem);
  problem.mask = Mask::full();
  expect_same_bits(run_guarded(kernel(), problem), causal);
}

TEST_P(Shapes, RowsWithoutAVisibleKeyAreZero) {
  for (const auto& [seq_q, seq_k] :
       {std::pair<std::int64_t, std::int64_t>{7, 3}, {300, 44}, {300, 1}, {2600, 9}}) {
    const HostProblem problem =
        verify::random_problem({2, seq_q, seq_k, 4, 2, 64}, Mask::causal(), case_seed(0));
    for (const Precision precision : kPrecisions) {
      RunSettings settings;
      settings.precision = precision;
      const Result result = run_guarded(kernel(), problem, settings);
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t h = 0; h < 4; ++h) {
          for (std::int64_t i = 0; i < seq_q - seq_k; ++i) {
            const float* row = out_row(problem, result, b, i, h);
            for (int d = 0; d < 64; ++d) ASSERT_EQ(row[d], 0.0F) << "row " << i;
            ASSERT_EQ(lse_at(problem, result, b, h, i), -INFINITY) << "row " << i;
          }
        }
      }
    }
    check(problem);
  }
}

TEST_P(Shapes, QueryHeadsShareTheRightKeyValueHead) {
  constexpr std::pair<std::int64_t, std::int64_t> kHeads[] = {
      {28, 4}, {12, 2}, {6, 3}, {8, 1}, {5, 5}, {64, 8}, {9, 3}, {21, 7}, {300, 1}};
  for (const auto& [heads_q, heads_kv] : kHeads) {
    for (const std::int64_t seq_q : {1, 19}) {
      HostProblem problem = blank_problem({2, seq_q, 23, heads_q, heads_kv, 16}, Mask::causal());
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t j = 0; j < 23; ++j) {
          for (std::int64_t h = 0; h < heads_kv; ++h) {
            fill(v_row(&problem, b, j, h), 16, static_cast<int>(h + 1 + 64 * b));
          }
        }
      }
      const Result result = run_guarded(kernel(), problem);
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t i = 0; i < seq_q; ++i) {
          for (std::int64_t h = 0; h < heads_q; ++h) {
            const std::int64_t head_kv = h / (heads_q / heads_kv);
            const auto expected = static_cast<float>(head_kv + 1 + 64 * b);
            ASSERT_NEAR(out_row(problem, result, b, i, h)[15], expected, 1e-5 * expected)
                << heads_q << " over " << heads_kv << " heads, batch " << b << " row " << i
                << " head " << h;
          }
        }
      }
    }
  }
}

// The same problem with the key/value heads repeated for every query head.
HostProblem repeat_heads(const HostProblem& grouped) {
  const Dimensions& d = grouped.dimensions;
  HostProblem repeated = grouped;
  repeated.dimensions.heads_kv = d.heads_q;
  const auto repeat = [&](const std::vector<std::int8_t>& from) {
    std::vector<std::int8_t> to;
    for (std::int64_t token = 0; token < d.batch * d.seq_k; ++token) {
      for (std::int64_t h = 0; h < d.heads_q; ++h) {
        const auto row =
            from.begin() + (token * d.heads_kv + h / (d.heads_q / d.heads_kv)) * d.head_dim;
        to.insert(to.end(), row, row + d.head_dim);
      }
    }
    return to;
  };
  repeated.k = repeat(grouped.k);
  repeated.v = repeat(grouped.v);
  repeated.k_scale.clear();
  repeated.v_scale.clear();
  for (std::int64_t h = 0; h < d.heads_q; ++h) {
    const auto kv = static_cast<std::size_t>(h / (d.heads_q / d.heads_kv));
    repeated.k_scale.push_back(grouped.k_scale[kv]);
    repeated.v_scale.push_back(grouped.v_scale[kv]);
  }
  return repeated;
}

TEST_P(Shapes, GroupedHeadsEqualRepeatedHeads) {
  std::uint64_t index = 0;
  for (const auto& [seq_q, seq_k] :
       {std::pair<std::int64_t, std::int64_t>{5, 5}, {130, 257}, {1, 300}}) {
    const HostProblem grouped =
        verify::random_problem({2, seq_q, seq_k, 8, 2, 64}, Mask::causal(), case_seed(index++));
    const HostProblem repeated = repeat_heads(grouped);
    for (const Precision precision : kPrecisions) {
      SCOPED_TRACE(describe(grouped, precision));
      RunSettings settings;
      settings.precision = precision;
      const Result expected = run_guarded(kernel(), repeated, settings);
      const Result got = run_guarded(kernel(), grouped, settings);
      if (kernel().is_reference()) {
        // The reference multiplies whole matrices, whose order of summation depends on their shape.
        expect_close(kernel(), grouped, got, expected, precision);
      } else {
        expect_same_bits(got, expected);
      }
    }
  }
}

TEST_P(Shapes, PaddingKeysTakeNoWeight) {
  // All true scores are near -20: a zero-padded key would score 0 and take everything.
  for (const std::int64_t keys : {1, 9, 31, 33, 63, 65, 77, 127, 129, 503, 2050}) {
    HostProblem problem = blank_problem({1, 2, keys, 1, 1, 16}, Mask::full());
    problem.softmax_scale = 20.0F / (127 * 16 * 100);
    double mean = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      fill(k_row(&problem, 0, j, 0), 16, -100);
      fill(v_row(&problem, 0, j, 0), 16, static_cast<int>(60 + j % 50));
      mean += static_cast<double>(60 + j % 50) / static_cast<double>(keys);
    }
    for (std::int64_t i = 0; i < 2; ++i) fill(q_row(&problem, 0, i, 0), 16, 127);
    const Result result = run_guarded(kernel(), problem);
    EXPECT_NEAR(out_row(problem, result, 0, 1, 0)[15], mean, 1e-5 * mean) << keys << " keys";
    EXPECT_NEAR(lse_at(problem, result, 0, 0, 1), std::log(static_cast<double>(keys)) - 20, 1e-4)
        << keys << " keys";
  }
}

TEST_P(Shapes, ConsistentWithoutLse) {
  for (const std::int64_t keys : {64, 5000}) {
    const HostProblem problem =
        verify::random_problem({3, 1, keys, 8, 2, 64}, Mask::causal(), case_seed(0));
    RunSettings settings;
    const Result with = run_guarded(kernel(), problem, settings);
    settings.lse = false;
    expect_same_bits(run_guarded(kernel(), problem, settings).out, with.out, "out without lse");
    check(problem);  // lse in one layout, whether or not the keys are split
  }
}

}  // namespace
}  // namespace qattn::test
