// Memory: strides, alignment, and not one byte outside the tensors.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "support/guarded_pages.hpp"
#include "support/kernel_param.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"
#include "support/segv_note.hpp"

namespace qattn::test {
namespace {

using verify::Dimensions;
using verify::HostProblem;
using verify::Result;

// How a tensor lies in an arena of bytes or floats.
struct Placement {
  std::int64_t offset = 0;
  Strides strides;
};

struct Layout {
  const char* name;
  Dimensions dimensions;
  Placement q, k, v, out;
};

Shape shape_q(const Dimensions& d) { return {d.batch, d.seq_q, d.heads_q, d.head_dim}; }
Shape shape_kv(const Dimensions& d) { return {d.batch, d.seq_k, d.heads_kv, d.head_dim}; }

// Offset of every element of a tensor in its arena, in contiguous order.
std::vector<std::size_t> offsets_of(const Shape& shape, const Placement& placement) {
  std::vector<std::size_t> offsets;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t t = 0; t < shape.seq; ++t) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        for (std::int64_t d = 0; d < shape.head_dim; ++d) {
          // Strides of dimensions with one entry may hold anything.
          const std::int64_t offset = (b == 0 ? 0 : b * placement.strides.batch) +
                                      (t == 0 ? 0 : t * placement.strides.seq) +
                                      (h == 0 ? 0 : h * placement.strides.heads) + d;
          offsets.push_back(static_cast<std::size_t>(placement.offset + offset));
        }
      }
    }
  }
  return offsets;
}

std::size_t arena_size(const std::vector<std::size_t>& offsets) {
  return *std::max_element(offsets.begin(), offsets.end()) + 64;
}

std::vector<std::int8_t> gather(const std::vector<std::int8_t>& arena,
                                const std::vector<std::size_t>& offsets) {
  std::vector<std::int8_t> values;
  values.reserve(offsets.size());
  for (const std::size_t offset : offsets) values.push_back(arena[offset]);
  return values;
}

// An input tensor in an arena full of random bytes, in a device's memory.
struct PlacedInput {
  PlacedInput(const Device& device, const Shape& extents, const Placement& where,
              std::mt19937_64& random)
      : shape(extents), placement(where) {
    const std::vector<std::size_t> offsets = offsets_of(shape, placement);
    std::vector<std::int8_t> bytes(arena_size(offsets));
    for (std::int8_t& x : bytes) x = static_cast<std::int8_t>(random() >> 56);
    values = gather(bytes, offsets);
    arena = Buffer<std::int8_t>(device, bytes.data(), bytes.size());
  }
  Int8Tensor view(const Buffer<float>& scale) const {
    return {arena.data() + placement.offset, shape, placement.strides, per_head(scale.data())};
  }

  Shape shape;
  Placement placement;
  std::vector<std::int8_t> values;
  Buffer<std::int8_t> arena;
};

class Layouts : public KernelTest {
 protected:
  void check(const Layout& layout, Precision precision) {
    const Dimensions& d = layout.dimensions;
    const Device& device = kernel().device;
    std::mt19937_64 random(case_seed(0));
    const PlacedInput q(device, shape_q(d), layout.q, random);
    const PlacedInput k(device, shape_kv(d), layout.k, random);
    const PlacedInput v(device, shape_kv(d), layout.v, random);
    HostProblem problem = verify::random_problem(d, Mask::causal(), case_seed(0));
    problem.q = q.values;
    problem.k = k.values;
    problem.v = v.values;
    SCOPED_TRACE(std::string(layout.name) + " " + describe(problem, precision));

    const Buffer<float> q_scale(device, problem.q_scale.data(), problem.q_scale.size());
    const Buffer<float> k_scale(device, problem.k_scale.data(), problem.k_scale.size());
    const Buffer<float> v_scale(device, problem.v_scale.data(), problem.v_scale.size());
    const std::vector<std::size_t> out_offsets = offsets_of(shape_q(d), layout.out);
    BorderedFloats out(device, static_cast<std::int64_t>(arena_size(out_offsets)));
    BorderedFloats lse(device, problem.lse_size());
    Options options = problem.options(precision, kernel().name);
    options.lse = lse.data();
    forward(device, q.view(q_scale), k.view(k_scale), v.view(v_scale),
            OutputTensor(out.data() + layout.out.offset, shape_q(d), layout.out.strides), options);

    RunSettings settings;
    settings.precision = precision;
    const Result expected = run_guarded(kernel(), problem, settings);
    std::vector<float> arena = out.take("out");
    std::vector<float> values;
    for (const std::size_t offset : out_offsets) {
      values.push_back(arena[offset]);
      std::memset(&arena[offset], 0, sizeof(float));
    }
    expect_same_bits(values, expected.out, "out");
    expect_same_bits(lse.take("lse"), expected.lse, "lse");
    const bool gap_written = std::any_of(
        arena.begin(), arena.end(), [](float x) { return bits_of(x) != 0 && !is_unwritten(x); });
    EXPECT_FALSE(gap_written) << "a gap between the rows of out was written";
  }

  void check(const Layout& layout) {
    check(layout, Precision::high);
    check(layout, Precision::fast);
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Layouts, testing::ValuesIn(all_kernels()), test_name);

// (batch, heads, seq, head_dim) in memory.
Placement heads_before_seq(const Shape& s) {
  return {0, {s.heads * s.seq * s.head_dim, s.head_dim, s.seq * s.head_dim}};
}

TEST_P(Layouts, HeadsBeforeSequence) {
  for (const std::int64_t head_dim : {32, 64, 80, 100}) {
    const Dimensions d{2, 37, 150, 4, 2, head_dim};
    check({"(B,H,S,D)", d, heads_before_seq(shape_q(d)), heads_before_seq(shape_kv(d)),
           heads_before_seq(shape_kv(d)), heads_before_seq(shape_q(d))});
  }
}

TEST_P(Layouts, SequenceBeforeBatch) {
  const Dimensions d{3, 21, 40, 4, 4, 64};
  const Placement seq_first{0, {4 * 64, 3 * 4 * 64, 64}};
  check({"(S,B,H,D)", d, seq_first, seq_first, seq_first, seq_first});
}

TEST_P(Layouts, SlicesOfAPackedTensor) {
  // q, k and v as parts of rows (3, heads, head_dim), in tensors of their own here.
  for (const std::int64_t head_dim : {64, 72}) {
    const Dimensions d{2, 70, 70, 3, 3, head_dim};
    const std::int64_t row = 3 * 3 * head_dim;
    const auto part = [&](std::int64_t index) {
      return Placement{index * 3 * head_dim, {70 * row, row, head_dim}};
    };
    check({"packed", d, part(0), part(1), part(2), {0, contiguous_strides(shape_q(d))}});
  }
}

TEST_P(Layouts, GapsEverywhere) {
  for (const std::int64_t head_dim : {16, 33, 64, 128}) {
    const Dimensions d{2, 19, 65, 4, 2, head_dim};
    const auto padded = [&](const Shape& s, std::int64_t offset) {
      const std::int64_t heads = s.head_dim + 5;
      const std::int64_t seq = s.heads * heads + 7;
      return Placement{offset, {s.seq * seq + 11, seq, heads}};
    };
    check({"gaps", d, padded(shape_q(d), 3), padded(shape_kv(d), 1), padded(shape_kv(d), 7),
           padded(shape_q(d), 13)});
  }
}

TEST_P(Layouts, EveryAlignmentOfTheBase) {
  const Dimensions d{1, 5, 70, 2, 1, 64};
  for (std::int64_t offset = 1; offset < 32; offset += offset < 8 ? 1 : 5) {
    check({"misaligned",
           d,
           {offset, contiguous_strides(shape_q(d))},
           {offset + 2, contiguous_strides(shape_kv(d))},
           {64 - offset, contiguous_strides(shape_kv(d))},
           {offset, contiguous_strides(shape_q(d))}});
  }
}

TEST_P(Layouts, AlignedBaseWithOddStrides) {
  const Dimensions d{2, 9, 140, 2, 2, 64};
  for (const std::int64_t pad : {1, 4, 8, 17}) {
    const auto odd = [&](const Shape& s) {
      const std::int64_t row = s.heads * s.head_dim + pad;
      return Placement{0, {s.seq * row, row, s.head_dim}};
    };
    check({"odd strides", d, odd(shape_q(d)), odd(shape_kv(d)), odd(shape_kv(d)), odd(shape_q(d))});
  }
}

TEST_P(Layouts, InputsMayOverlapThemselves) {
  // A sliding view: neighbouring tokens and heads share bytes.
  const Dimensions d{2, 8, 90, 2, 2, 32};
  check({"overlapping",
         d,
         {0, {40, 3, 1}},
         {0, {77, 5, 2}},
         {5, {50, 1, 9}},
         {0, contiguous_strides(shape_q(d))}});
}

TEST_P(Layouts, StridesOfSingleEntriesAreIgnored) {
  for (const std::int64_t garbage : {std::int64_t{0}, std::int64_t{-77}, INT64_MAX, INT64_MIN}) {
    const Dimensions one{1, 1, 1, 1, 1, 64};
    const Placement all{0, {garbage, garbage, garbage}};
    check({"single entries", one, all, all, all, all});
    const Dimensions decode{1, 1, 50, 4, 1, 64};
    const Placement q{0, {garbage, garbage, 64}};
    const Placement kv{0, {garbage, 64, garbage}};
    check({"decode", decode, q, kv, kv, q});
  }
}

// Host memory between unreadable pages; the inputs are read-only.
class GuardPages : public KernelTest {
 protected:
  template <typename T>
  using Pages = GuardedPages<T>;

  template <typename Edge>
  void run_between_pages(const HostProblem& problem, Precision precision, Edge bytes_at,
                         Pages<float>::Edge floats_at) {
    const std::string what = kernel().name + " " + describe(problem, precision);
    const SegvNote note(what.c_str());
    Pages<std::int8_t> q(problem.q.data(), problem.q.size(), bytes_at);
    Pages<std::int8_t> k(problem.k.data(), problem.k.size(), bytes_at);
    Pages<std::int8_t> v(problem.v.data(), problem.v.size(), bytes_at);
    Pages<float> q_scale(problem.q_scale.data(), problem.q_scale.size(), floats_at);
    Pages<float> k_scale(problem.k_scale.data(), problem.k_scale.size(), floats_at);
    Pages<float> v_scale(problem.v_scale.data(), problem.v_scale.size(), floats_at);
    Pages<float> out(static_cast<std::size_t>(problem.out_size()), floats_at);
    Pages<float> lse(static_cast<std::size_t>(problem.lse_size()), floats_at);
    const Dimensions& d = problem.dimensions;
    Options options = problem.options(precision, kernel().name);
    options.lse = lse.data();
    forward(Device::cpu(), Int8Tensor(q.data(), shape_q(d), per_head(q_scale.data())),
            Int8Tensor(k.data(), shape_kv(d), per_head(k_scale.data())),
            Int8Tensor(v.data(), shape_kv(d), per_head(v_scale.data())),
            OutputTensor(out.data(), shape_q(d)), options);
    RunSettings settings;
    settings.precision = precision;
    const Result expected = run_guarded(kernel(), problem, settings);
    expect_same_bits({out.data(), out.data() + problem.out_size()}, expected.out, what.c_str());
    expect_same_bits({lse.data(), lse.data() + problem.lse_size()}, expected.lse, what.c_str());
  }
};
std::vector<KernelCase> host_kernels() {
  std::vector<KernelCase> kernels = all_kernels();
  std::erase_if(kernels, [](const KernelCase& kernel) { return !kernel.on_cpu(); });
  return kernels;
}
INSTANTIATE_TEST_SUITE_P(Kernels, GuardPages, testing::ValuesIn(host_kernels()), test_name);

TEST_P(GuardPages, NoByteOutsideTheTensors) {
  constexpr std::int64_t kLengths[][2] = {{1, 1}, {1, 3}, {3, 5}, {18, 130}, {1, 2050}};
  for (const std::int64_t head_dim :
       {1, 3, 4, 7, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 100, 127, 128, 129, 255, 256}) {
    for (const auto& [seq_q, seq_k] : kLengths) {
      const HostProblem problem =
          verify::random_problem({2, seq_q, seq_k, 2, 1, head_dim}, Mask::causal(), case_seed(0));
      for (const Precision precision : {Precision::high, Precision::fast}) {
        run_between_pages(problem, precision, Pages<std::int8_t>::Edge::back,
                          Pages<float>::Edge::back);
        run_between_pages(problem, precision, Pages<std::int8_t>::Edge::front,
                          Pages<float>::Edge::front);
      }
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace qattn::test
