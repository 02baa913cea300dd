// Concurrency on the CPU: many callers, the caller's OpenMP and floating-point settings, nesting.
#include <omp.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "support/child.hpp"
#include "support/kernel_param.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace qattn::test {
namespace {

using verify::HostProblem;
using verify::Result;

class Threads : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, Threads, testing::ValuesIn(all_kernels()), test_name);

TEST_P(Threads, ManyCallersAtOnce) {
  constexpr int kCallers = 16;
  std::vector<HostProblem> problems;
  std::vector<Result> expected;
  for (int i = 0; i < kCallers; ++i) {
    problems.push_back(verify::random_problem({1, 30 + i, 200 + 31 * i, 2, 1, 16 + 9 * i},
                                              Mask::causal(), case_seed(static_cast<unsigned>(i))));
    expected.push_back(run_guarded(kernel(), problems.back()));
  }
  std::vector<Result> got(kCallers);
  std::vector<std::thread> callers;
  for (std::size_t i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      for (int repeat = 0; repeat < 3; ++repeat) got[i] = run_guarded(kernel(), problems[i]);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (std::size_t i = 0; i < kCallers; ++i) expect_same_bits(got[i], expected[i]);
}

// What binds kernels that run on the CPU. The problem is large enough for several threads.
// No rounding of its softmax scale is exact: 1 / sqrt(60).
class HostThreads : public KernelTest {
 protected:
  static HostProblem problem() {
    return verify::random_problem({1, 300, 300, 4, 2, 60}, Mask::causal(), 5);
  }
};
std::vector<KernelCase> host_kernels() {
  std::vector<KernelCase> kernels = all_kernels();
  std::erase_if(kernels, [](const KernelCase& kernel) { return !kernel.on_cpu(); });
  return kernels;
}
INSTANTIATE_TEST_SUITE_P(Kernels, HostThreads, testing::ValuesIn(host_kernels()), test_name);

TEST_P(HostThreads, OpenMpSettingsStayAsTheyWere) {
  const int threads_before = omp_get_max_threads();
  const int dynamic_before = omp_get_dynamic();
  const int levels_before = omp_get_max_active_levels();
  omp_set_num_threads(3);
  omp_set_dynamic(1);
  omp_set_max_active_levels(1);
  omp_set_schedule(omp_sched_guided, 17);
  RunSettings settings;
  settings.threads = 2;
  run_guarded(kernel(), problem(), settings);
  EXPECT_EQ(omp_get_max_threads(), 3);
  EXPECT_EQ(omp_get_dynamic(), 1);
  EXPECT_EQ(omp_get_max_active_levels(), 1);
  omp_sched_t schedule = omp_sched_static;
  int chunk = 0;
  omp_get_schedule(&schedule, &chunk);
  EXPECT_EQ(schedule, omp_sched_guided);
  EXPECT_EQ(chunk, 17);
  omp_set_num_threads(threads_before);
  omp_set_dynamic(dynamic_before);
  omp_set_max_active_levels(levels_before);
  omp_set_schedule(omp_sched_static, 0);
}

TEST_P(HostThreads, CalledInsideAParallelRegion) {
  const HostProblem shared = problem();
  const Result expected = run_guarded(kernel(), shared);
  std::vector<Result> got(3);
#pragma omp parallel for num_threads(3) schedule(static, 1)
  for (int i = 0; i < 3; ++i) got[static_cast<std::size_t>(i)] = run_guarded(kernel(), shared);
  for (const Result& result : got) expect_same_bits(result, expected);
}

TEST_P(HostThreads, CalledInsideANestedParallelRegion) {
  const HostProblem shared = problem();
  const Result expected = run_guarded(kernel(), shared);
  const int levels_before = omp_get_max_active_levels();
  omp_set_max_active_levels(3);
  std::vector<Result> got(2);
#pragma omp parallel for num_threads(2) schedule(static, 1)
  for (int i = 0; i < 2; ++i) got[static_cast<std::size_t>(i)] = run_guarded(kernel(), shared);
  omp_set_max_active_levels(levels_before);
  for (const Result& result : got) expect_same_bits(result, expected);
}

TEST_P(HostThreads, RoundingModeNeitherMattersNorChanges) {
  const HostProblem shared = problem();
  const Result expected = run_guarded(kernel(), shared);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const Result result = run_guarded(kernel(), shared);
    const int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(after, mode);
    expect_same_bits(result, expected);
  }
}

#if defined(__x86_64__)
TEST_P(HostThreads, FlushToZeroNeitherMattersNorChanges) {
  HostProblem shared = problem();
  shared.v_scale = {1e-41F, 3e-42F};  // results are subnormal numbers
  shared.q_scale[0] = 1e-40F;
  shared.k_scale[0] = 1e30F;
  const Result expected = run_guarded(kernel(), shared);
  const unsigned before = _mm_getcsr();
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kDenormalsAreZero = 0x0040;
  _mm_setcsr(before | kFlushToZero | kDenormalsAreZero);
  const Result result = run_guarded(kernel(), shared);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  constexpr unsigned kControlBits = 0xFFC0;
  EXPECT_EQ(after & kControlBits, (before | kFlushToZero | kDenormalsAreZero) & kControlBits);
  expect_same_bits(result, expected);
}

TEST_P(HostThreads, UnmaskedTrapsDoNotFire) {
  HostProblem shared = problem();
  shared.q_scale[1] = std::numeric_limits<float>::infinity();
  shared.v_scale[1] = 1e-45F;
  const Result expected = run_guarded(kernel(), shared);
  const unsigned before = _mm_getcsr();
  constexpr unsigned kStatusBits = 0x3F;
  constexpr unsigned kMasks = 0x0680;           // invalid operation, division by zero, overflow
  _mm_setcsr(before & ~kMasks & ~kStatusBits);  // any of these now raises SIGFPE
  Options options = shared.options(Precision::high, kernel().name);
  std::vector<float> out(expected.out.size());
  std::vector<float> lse(expected.lse.size());
  options.lse = lse.data();
  forward(Device::cpu(), shared.q_view(), shared.k_view(), shared.v_view(),
          OutputTensor(out.data(), shared.out_shape()), options);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after & kMasks, 0U);
  for (std::size_t i = 0; i < out.size(); ++i) {
    // NaNs need not agree in their bits.
    if (!std::isnan(expected.out[i])) {
      ASSERT_EQ(out[i], expected.out[i]);
    }
  }
}
#endif

TEST(ThreadsInAProcess, FirstCallFromManyThreads) {
  const ChildResult child = run_child("first_call_from_many_threads");
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

TEST(ThreadsInAProcess, SmallStacks) {
  const ChildResult child =
      run_child("small_stacks", {{"OMP_STACKSIZE", "128K"}, {"OMP_NUM_THREADS", "8"}}, 120);
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

TEST(ThreadsInAProcess, TeamSmallerThanAskedFor) {
  for (const char* limit : {"1", "2", "3"}) {
    const ChildResult child = run_child("seven_threads", {{"OMP_THREAD_LIMIT", limit}});
    EXPECT_EQ(child.exit_code, 0) << child.output;
  }
  const ChildResult child = run_child("seven_threads", {{"OMP_DYNAMIC", "true"}});
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

TEST(ThreadsInAProcess, ThreadLimitsAreHonoured) {
  const ChildResult child = run_child("count_threads", {{"OMP_NUM_THREADS", "6"}});
  EXPECT_EQ(child.output, "");
  EXPECT_EQ(child.exit_code, 0);
}

TEST(ThreadsInAProcess, ForkAfterUse) {
  for (const char* scenario : {"fork_after_use", "fork_before_first_use", "fork_with_executor"}) {
    const ChildResult child = run_child(scenario, {{"OMP_NUM_THREADS", "4"}}, 60);
    EXPECT_FALSE(child.timed_out) << scenario << " hangs";
    EXPECT_EQ(child.exit_code, 0) << scenario << "\n" << child.output;
  }
}

TEST(ThreadsInAProcess, OutOfMemoryIsAnErrorAndTheLibraryStaysUsable) {
  const ChildResult child = run_child("out_of_memory", {{"OMP_NUM_THREADS", "8"}}, 120);
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

TEST(ThreadsInAProcess, MemoryDoesNotGrow) {
  const ChildResult child = run_child("memory_does_not_grow", {{"OMP_NUM_THREADS", "2"}}, 120);
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

}  // namespace
}  // namespace qattn::test
