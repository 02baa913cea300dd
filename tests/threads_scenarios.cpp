// What threads_test.cpp runs in processes of their own. Exit code 0: as it should be.
#include <malloc.h>
#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/child.hpp"
#include "verify/host_problem.hpp"

namespace qattn::test {
namespace {

using verify::HostProblem;
using verify::Result;

// Kernels that run on this CPU, the reference among them.
std::vector<std::string> host_kernels() {
  std::vector<std::string> names;
  for (const KernelStatus& status : kernels(Device::cpu())) {
    if (status.usable) names.push_back(status.name);
  }
  return names;
}

bool same_bits(const Result& a, const Result& b) {
  return a.out.size() == b.out.size() && a.lse.size() == b.lse.size() &&
         std::memcmp(a.out.data(), b.out.data(), a.out.size() * sizeof(float)) == 0 &&
         std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0;
}

// Large enough for several threads.
HostProblem parallel_problem() {
  return verify::random_problem({1, 400, 400, 4, 2, 64}, Mask::causal(), 7);
}

Result run(const HostProblem& problem, const std::string& kernel = {}, int threads = 0) {
  return verify::run(problem, Device::cpu(), Precision::high, kernel, threads);
}

int fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return 1;
}

int first_call_from_many_threads() {
  constexpr std::size_t kCallers = 16;
  const HostProblem problem = parallel_problem();
  std::atomic<int> waiting{kCallers};
  std::vector<Result> results(kCallers);
  std::vector<std::thread> callers;
  for (std::size_t i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      results[i] = run(problem);
    });
  }
  for (std::thread& caller : callers) caller.join();
  const Result expected = run(problem, "cpu/scalar");
  for (const Result& result : results) {
    if (!same_bits(result, expected)) return fail("a first call gave another result");
  }
  return 0;
}
const ChildScenario first_call("first_call_from_many_threads", first_call_from_many_threads);

// Every kernel from a thread with a stack of 128 KB, on workers with one as small (OMP_STACKSIZE).
int small_stacks() {
  const HostProblem problem = verify::random_problem({1, 70, 5000, 4, 2, 256}, Mask::causal(), 7);
  const Result expected = run(problem, "cpu/scalar");
  struct Task {
    const HostProblem* problem;
    const Result* expected;
    bool same = true;
  } task{&problem, &expected};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 128 * 1024);
  const auto body = [](void* argument) -> void* {
    auto& t = *static_cast<Task*>(argument);
    for (const std::string& kernel : host_kernels()) {
      if (kernel.rfind("cpu/", 0) != 0) {
        run(*t.problem, kernel);
        continue;
      }
      for (const int threads : {1, 8}) {
        t.same = t.same && same_bits(run(*t.problem, kernel, threads), *t.expected);
      }
    }
    return nullptr;
  };
  pthread_t thread;
  if (pthread_create(&thread, &attributes, body, &task) != 0) return fail("no thread");
  pthread_join(thread, nullptr);
  return task.same ? 0 : fail("another result on a small stack");
}
const ChildScenario small("small_stacks", small_stacks);

int seven_threads() {
  const HostProblem problem = parallel_problem();
  return same_bits(run(problem, {}, 7), run(problem, "cpu/scalar", 1))
             ? 0
             : fail("another result with a smaller team");
}
const ChildScenario seven("seven_threads", seven_threads);

int threads_of_this_process() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    int count = 0;
    if (word == "Threads:" && status >> count) return count;
  }
  return -1;
}

int count_threads() {
  const HostProblem problem =
      verify::random_problem({1, 1024, 1024, 8, 8, 64}, Mask::full(), 7);  // work for many threads
  run(problem, {}, 1);
  if (threads_of_this_process() != 1) return fail("options.threads = 1 started threads");
  omp_set_num_threads(2);
  run(problem);
  if (threads_of_this_process() > 2) return fail("omp_set_num_threads(2) was ignored");
  run(problem, {}, 3);
  if (threads_of_this_process() > 3) return fail("options.threads = 3 was exceeded");
  return 0;
}
const ChildScenario counting("count_threads", count_threads);

// Waits for a child that must end by itself.
int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return fail("the forked child was ended by signal " + std::to_string(WTERMSIG(status)));
}

constexpr unsigned kHangSeconds = 20;  // SIGALRM then ends a hanging child

int fork_after_use() {
  const HostProblem problem = parallel_problem();
  const Result expected = run(problem);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kHangSeconds);
    for (const std::string& kernel : host_kernels()) {
      const bool tier = kernel.rfind("cpu/", 0) == 0;
      std::fprintf(stderr, "%s in the child\n",
                   kernel.c_str());  // the last one is the one that hangs
      const Result result = run(problem, kernel);
      if (tier && !same_bits(result, expected)) _exit(fail("another result after fork"));
    }
    _exit(0);
  }
  const int code = wait_for(child);
  return same_bits(run(problem), expected) ? code : fail("another result in the parent");
}
const ChildScenario fork_after("fork_after_use", fork_after_use);

// The program uses OpenMP and forks; the library is first called in the child.
int fork_before_first_use() {
  std::atomic<int> team{0};
#pragma omp parallel num_threads(4)
  ++team;
  const pid_t child = fork();
  if (child == 0) {
    alarm(kHangSeconds);
    const HostProblem problem = parallel_problem();
    _exit(same_bits(run(problem, {}, 4), run(problem, "cpu/scalar", 1)) ? 0 : fail("differs"));
  }
  return wait_for(child);
}
const ChildScenario fork_before("fork_before_first_use", fork_before_first_use);

void run_on_two_threads(void* /*context*/, std::int64_t tasks,
                        void (*task)(void* argument, std::int64_t index), void* argument) {
  std::thread other([=] {
    for (std::int64_t i = 1; i < tasks; i += 2) task(argument, i);
  });
  for (std::int64_t i = 0; i < tasks; i += 2) task(argument, i);
  other.join();
}

// The caller's pool is the caller's affair: it serves in a forked child too.
int fork_with_executor() {
  const HostProblem problem = parallel_problem();
  const Result expected = run(problem);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kHangSeconds);
    Options options = problem.options(Precision::high);
    options.executor = {run_on_two_threads, nullptr};
    std::vector<float> out(expected.out.size());
    forward(Device::cpu(), problem.q_view(), problem.k_view(), problem.v_view(),
            OutputTensor(out.data(), problem.out_shape()), options);
    _exit(same_bits({out, expected.lse}, expected) ? 0 : fail("differs"));
  }
  return wait_for(child);
}
const ChildScenario fork_executor("fork_with_executor", fork_with_executor);

std::size_t virtual_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0;
  statm >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0;
  statm >> pages >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Bytes that the process may still map.
void limit_memory(std::size_t more_bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = more_bytes == 0 ? limit.rlim_max : virtual_bytes() + more_bytes;
  setrlimit(RLIMIT_AS, &limit);
}

void run_serially(void* /*context*/, std::int64_t tasks,
                  void (*task)(void* argument, std::int64_t index), void* argument) {
  for (std::int64_t i = 0; i < tasks; ++i) task(argument, i);
}

int out_of_memory() {
  mallopt(M_MMAP_THRESHOLD, 16 * 1024);  // what is freed goes back to the system at once
  mallopt(M_TRIM_THRESHOLD, 0);
  mallopt(M_TOP_PAD, 0);
  const HostProblem problem = verify::random_problem({1, 300, 6000, 4, 2, 256}, Mask::causal(), 7);
  std::vector<float> out(static_cast<std::size_t>(problem.out_size()));
  const auto call = [&](const std::string& kernel, bool executor) {
    Options options = problem.options(Precision::high, kernel);
    if (executor) options.executor = {run_serially, nullptr};
    forward(Device::cpu(), problem.q_view(), problem.k_view(), problem.v_view(),
            OutputTensor(out.data(), problem.out_shape()), options);
  };
  call("", false);  // starts the threads
  for (const std::string& kernel : host_kernels()) {
    for (const bool executor : {false, true}) {
      call(kernel, executor);
      // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): `call` writes out again.
      const std::vector<float> expected = out;
      malloc_trim(0);
      limit_memory(64 * 1024);  // enough for a message, not for scratch
      bool refused = false;
      try {
        call(kernel, executor);
      } catch (const Error& error) {
        refused = error.code() == ErrorCode::out_of_memory;
      } catch (const std::exception& error) {
        limit_memory(0);
        return fail(kernel + ": no qattn::Error but " + error.what());
      }
      limit_memory(0);
      if (!refused) return fail(kernel + ": memory ran out without an out_of_memory error");
      call(kernel, executor);
      if (out != expected) return fail(kernel + ": another result after memory ran out");
    }
  }
  return 0;
}
const ChildScenario memory("out_of_memory", out_of_memory);

int memory_does_not_grow() {
  const std::vector<std::int8_t> bytes(1 << 16, 1);
  const std::vector<float> scales(16, 0.1F);
  std::vector<float> out(1 << 16);
  const auto call = [&](std::int64_t i) {
    const Shape shape_q{1, 1 + i % 7, 2, 1 + i % 256};
    const Shape shape_kv{1, 1 + i % 61, 1, 1 + i % 256};
    const Int8Tensor kv(bytes.data(), shape_kv, per_head(scales.data()));
    Options options;
    options.threads = i % 3 == 0 ? -1 : 0;  // every third call is an error
    try {
      forward(Device::cpu(), Int8Tensor(bytes.data(), shape_q, per_head(scales.data())), kv, kv,
              OutputTensor(out.data(), shape_q), options);
    } catch (const Error&) {
    }
  };
  for (std::int64_t i = 0; i < 3000; ++i) call(i);
  for (int i = 0; i < 50; ++i) std::thread(call, i).join();
  const std::size_t before = resident_bytes();
  for (std::int64_t i = 3000; i < 33000; ++i) call(i);
  for (int i = 0; i < 1000; ++i) std::thread(call, i).join();
  const std::size_t after = resident_bytes();
  constexpr std::size_t kNoise = 1 << 20;  // 30 bytes a call would show
  return after <= before + kNoise
             ? 0
             : fail("resident memory grew by " + std::to_string(after - before) + " bytes");
}
const ChildScenario growth("memory_does_not_grow", memory_does_not_grow);

}  // namespace
}  // namespace qattn::test
