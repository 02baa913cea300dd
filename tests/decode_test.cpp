// Few queries against many keys: the keys are split and the states of their chunks joined, with the
// bits of rows that go from the first key to the last in one task.
#include <algorithm>
#include <vector>

#include "cpu/decode_shape.hpp"
#include "cpu/partials.hpp"
#include "cpu/scratch.hpp"
#include "support/kernel_param.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"

namespace qattn::test {
namespace {

using verify::Dimensions;
using verify::HostProblem;
using verify::Result;

class Decode : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, Decode, testing::ValuesIn(cpu_tiers()), test_name);

constexpr Precision kPrecisions[] = {Precision::high, Precision::fast};
constexpr std::int64_t kWholeQueries = 33;  // with at least as many rows no keys are split

RunSettings settings_of(Precision precision, int threads) {
  RunSettings settings;
  settings.precision = precision;
  settings.threads = threads;
  return settings;
}

// The last `count` queries, against the same keys.
HostProblem last_queries(const HostProblem& problem, std::int64_t count) {
  const Dimensions& d = problem.dimensions;
  HostProblem part = problem;
  part.dimensions.seq_q = count;
  part.q.clear();
  const std::int64_t row = d.heads_q * d.head_dim;
  for (std::int64_t b = 0; b < d.batch; ++b) {
    const auto end = problem.q.begin() + (b + 1) * d.seq_q * row;
    part.q.insert(part.q.end(), end - count * row, end);
  }
  return part;
}

void expect_last_rows(const HostProblem& whole, const Result& expected, const HostProblem& part,
                      const Result& got) {
  const Dimensions& d = whole.dimensions;
  const std::int64_t count = part.dimensions.seq_q;
  for (std::int64_t b = 0; b < d.batch; ++b) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t h = 0; h < d.heads_q; ++h) {
        const std::int64_t row = d.seq_q - count + i;
        const float* a = out_row(part, got, b, i, h);
        const float* e = out_row(whole, expected, b, row, h);
        expect_same_bits({a, a + d.head_dim}, {e, e + d.head_dim}, "out");
        expect_same_bits({lse_at(part, got, b, h, i)}, {lse_at(whole, expected, b, h, row)}, "lse");
      }
    }
  }
}

struct Case {
  Dimensions dimensions;  // with kWholeQueries queries
  std::vector<std::int64_t> queries;
};

void check(const KernelCase& kernel, const Case& c, const Mask& mask, std::uint64_t seed) {
  HostProblem problem = verify::random_problem(c.dimensions, mask, case_seed(seed), 2.0);
  problem.q_scale.back() *= -1;
  for (const Precision precision : kPrecisions) {
    const Result whole = run_guarded(kernel, problem, settings_of(precision, 1));
    for (const std::int64_t count : c.queries) {
      const HostProblem part = last_queries(problem, count);
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(describe(part, precision) + " threads " + std::to_string(threads));
        const Result got = run_guarded(kernel, part, settings_of(precision, threads));
        expect_last_rows(problem, whole, part, got);
      }
    }
  }
}

TEST_P(Decode, LengthsAroundGroupsAndChunks) {
  std::uint64_t seed = 0;
  for (const std::int64_t seq_k :
       {2047, 2048, 2049, 2063, 2064, 2175, 2176, 2177, 4095, 4096, 4097, 6144 + 128, 6144 + 1}) {
    check(kernel(), {{1, kWholeQueries, seq_k, 3, 3, 64}, {1, 2, 5}}, Mask::causal(), seed++);
  }
}

TEST_P(Decode, EveryNumberOfQueriesAndHeads) {
  std::uint64_t seed = 100;
  for (const std::int64_t group : {1, 2, 3, 4, 8}) {
    for (const std::int64_t heads_kv : {1, 2, 9}) {
      std::vector<std::int64_t> queries;
      for (std::int64_t i = 1; i * group <= 17; i += i < 4 ? 1 : 4) queries.push_back(i);
      check(kernel(), {{1, kWholeQueries, 2048 + 140, group * heads_kv, heads_kv, 64}, queries},
            Mask::causal(), seed++);
    }
  }
}

TEST_P(Decode, EveryHeadDim) {
  std::uint64_t seed = 200;
  for (const std::int64_t head_dim : {1, 32, 64, 80, 128, 192, 256}) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      check(kernel(), {{2, kWholeQueries, 2300, 8, 4, head_dim}, {1, 3}}, mask, seed++);
    }
  }
}

// Heads side by side, in fours and what is left of them, and keys in quads.
TEST_P(Decode, NumbersOfHeadsAndLastKeys) {
  std::uint64_t seed = 250;
  for (const std::int64_t heads_kv : {3, 4, 5, 6, 8}) {
    for (const std::int64_t group : {1, 2}) {
      const std::int64_t seq_k = 2048 + 128 + heads_kv + group;
      check(kernel(), {{1, kWholeQueries, seq_k, group * heads_kv, heads_kv, 64}, {1, 2}},
            Mask::causal(), seed++);
    }
  }
  for (std::int64_t last = 1; last <= 9; ++last) {
    check(kernel(), {{1, kWholeQueries, 2048 + last, 4, 1, 128}, {1}}, Mask::full(), seed++);
  }
}

// The order of keys within a group is a matter of speed where every row sees them all: each key
// here has a weight and a value of its own, and the least value that there is.
TEST_P(Decode, EveryKeyMeetsItsOwnValue) {
  HostProblem problem =
      verify::random_problem({1, 1, 2048 + 256, 5, 5, 64}, Mask::causal(), case_seed(280), 2.0);
  for (std::size_t i = 0; i < problem.v.size(); ++i) {
    problem.v[i] = static_cast<std::int8_t>(static_cast<int>(i / 64 * 37 + i % 64) % 256 - 128);
    if (i % 3 == 0) problem.k[i] = -128;
  }
  for (const Precision precision : kPrecisions) {
    const Result expected =
        run_guarded(kernel_named("cpu/scalar"), problem, settings_of(precision, 1));
    expect_same_bits(run_guarded(kernel(), problem, settings_of(precision, 1)), expected);
  }
}

// More heads than a task takes.
TEST_P(Decode, ManyHeads) {
  check(kernel(), {{2, kWholeQueries, 2100, 35, 35, 64}, {1}}, Mask::causal(), 300);
}

// Only some of the rows see a key of the last chunk.
TEST_P(Decode, ChunksThatSomeRowsDoNotSee) {
  std::uint64_t seed = 400;
  for (const Dimensions& d : {Dimensions{1, 4, 2049, 2, 2, 64}, {1, 16, 2050, 1, 1, 128}}) {
    const HostProblem problem = verify::random_problem(d, Mask::causal(), case_seed(seed++));
    const Result expected = run_guarded(kernel_named("cpu/scalar"), problem);
    expect_same_bits(run_guarded(kernel(), problem), expected);
  }
}

// What a token costs in memory stays far below its keys and values, at any length.
TEST(DecodeMemory, Bounded) {
  for (const std::int64_t head_dim : {64, 128, 256}) {
    for (const std::int64_t rows : {1, 4, 16}) {
      const cpu::DecodeShape shape{head_dim, rows, cpu::kMaxChunkHeads};
      EXPECT_LT(shape.scratch_bytes(), std::size_t{2} << 20);
      EXPECT_EQ(shape.scratch_bytes() % cpu::kScratchAlignment, 0U);
      const cpu::Partials partials{nullptr, 131072 / cpu::kChunkKeys, rows,
                                   cpu::padded_columns(head_dim)};
      const std::int64_t pairs = 32;
      const auto keys_and_values = static_cast<std::size_t>(2 * pairs * 131072 * head_dim);
      EXPECT_LT(partials.bytes(pairs), keys_and_values / 50);
    }
  }
}

}  // namespace
}  // namespace qattn::test
