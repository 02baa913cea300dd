// Host memory that runs out at any allocation: an Error, and the library works on.
#include <cstdlib>
#include <functional>
#include <new>

#include "support/kernel_param.hpp"
#include "support/problems.hpp"
#include "support/run.hpp"

namespace {

// Allocations of this thread until one fails; 0: none does.
thread_local int allocations_left = 0;

void* allocate(std::size_t size) {
  if (allocations_left > 0 && --allocations_left == 0) return nullptr;
  return std::malloc(size == 0 ? 1 : size);
}

}  // namespace

void* operator new(std::size_t size) {
  if (void* memory = allocate(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace qattn::test {
namespace {

// Lets the first, second, ... allocation of `call` fail, until one call has fewer.
void expect_errors_alone(const char* what, const std::function<void()>& call) {
  call();  // what is allocated once in a process
  int failures = 0;
  for (int n = 1;; ++n) {
    ASSERT_LT(n, 1000) << what;
    bool failed = false;
    allocations_left = n;
    try {
      call();
    } catch (const Error& error) {
      failed = error.code() == ErrorCode::out_of_memory;
      EXPECT_TRUE(failed) << what << ": " << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << what << " let out " << error.what() << " at allocation " << n;
      failed = true;
    }
    const bool reached = allocations_left == 0;
    allocations_left = 0;
    failures += failed ? 1 : 0;
    if (!reached) break;  // also where the library does without the memory
  }
  std::printf("%s: %d allocations that may fail\n", what, failures);
}

TEST(HostMemory, RunningOutIsAnError) {
  const verify::HostProblem problem =
      verify::random_problem({1, 70, 70, 2, 2, 32}, Mask::causal(), case_seed(0));
  const verify::Result expected = run_guarded(kernel_named("cpu/scalar"), problem);
  std::vector<float> out(static_cast<std::size_t>(problem.out_size()));
  Options options = problem.options(Precision::high, "cpu/scalar");
  options.threads = 1;
  const OutputTensor target(out.data(), problem.out_shape());
  const auto q = problem.q_view(), k = problem.k_view(), v = problem.v_view();
  const Device cpu = Device::cpu();
  expect_errors_alone("forward", [&] { forward(cpu, q, k, v, target, options); });
  expect_errors_alone("workspace_bytes",
                      [&] { (void)workspace_bytes(cpu, q, k, v, target, options); });
  expect_errors_alone("kernels", [&] { (void)kernels(cpu); });
  expect_errors_alone("explain", [&] { (void)explain(cpu, q, k, v, target, options).to_string(); });
  expect_errors_alone("machine_info", [] { (void)machine_info(); });
  forward(cpu, q, k, v, target, options);
  expect_same_bits(out, expected.out, "out");
}

}  // namespace
}  // namespace qattn::test
