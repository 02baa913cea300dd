#include "cpu/driver.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "core/float_environment.hpp"
#include "cpu/scratch.hpp"
#include "cpu/threads.hpp"
#include "qattn/error.hpp"

namespace qattn::cpu {
namespace {

constexpr std::int64_t kMinRowsPerTask = 64;
// Tasks per thread below which rows are cut finer: with fewer, the last task leaves threads idle.
constexpr std::int64_t kTasksPerThread = 4;
// Multiply-adds for which one more thread pays. (2, 72, 4, 32), of 1.35 million, takes 15.9 us on
// one thread and 10.5 on two where OpenMP's threads still spin from the last call (some
// milliseconds); where they sleep, the second costs 25 us more than it gains.
constexpr std::int64_t kMulAddsPerThread = 1'000'000;

struct FreeScratch {
  void operator()(std::byte* pointer) const noexcept { std::free(pointer); }
};
using Scratch = std::unique_ptr<std::byte, FreeScratch>;

Scratch allocate_scratch(std::size_t bytes) noexcept {
  return Scratch(static_cast<std::byte*>(std::aligned_alloc(kScratchAlignment, bytes)));
}

[[noreturn]] void throw_out_of_memory(std::size_t bytes) {
  throw Error(ErrorCode::out_of_memory,
              "out of host memory: " + std::to_string(bytes) + " bytes of scratch were asked for");
}

// The tasks of a problem. Task 0 is the heaviest: under a causal mask later rows see more keys.
struct Tasks {
  const core::Problem* problem = nullptr;
  RunWork run = nullptr;
  std::int64_t pairs = 0;  // (batch, kv head)
  std::int64_t rows = 0;   // per pair
  std::int64_t rows_per_task = 0;
  std::int64_t row_blocks = 0;

  void cut(std::int64_t threads) noexcept {
    while (threads > 1 && rows_per_task > kMinRowsPerTask && count() < kTasksPerThread * threads) {
      rows_per_task /= 2;
    }
    row_blocks = (rows + rows_per_task - 1) / rows_per_task;
  }
  std::int64_t count() const noexcept {
    return pairs * ((rows + rows_per_task - 1) / rows_per_task);
  }
  // In the environment of core::FloatEnvironment.
  void execute(std::int64_t index, std::byte* scratch) const noexcept {
    const std::int64_t block = row_blocks - 1 - index / pairs;
    const std::int64_t pair = index % pairs;
    Work work;
    work.problem = problem;
    work.batch = pair / problem->heads_kv;
    work.head_kv = pair % problem->heads_kv;
    work.row_begin = block * rows_per_task;
    work.row_end = std::min(rows, work.row_begin + rows_per_task);
    work.scratch = scratch;
    run(work);
  }
};

std::int64_t worthwhile_threads(const core::Problem& p) noexcept {
  // Both products, in float64 since the count may leave 63 bits. Visible keys grow by one per
  // query, so the first and the last query give the mean.
  const double keys = 0.5 * static_cast<double>(p.visible_keys(0) + p.visible_keys(p.seq_q - 1));
  const double mul_adds = 2.0 * static_cast<double>(p.batch * p.heads_q) *
                          static_cast<double>(p.seq_q) * keys * static_cast<double>(p.head_dim);
  return static_cast<std::int64_t>(std::min(mul_adds / kMulAddsPerThread, 1e6)) + 1;
}

// Runs on the caller's pool. How many tasks run at once is the pool's affair, so each brings its
// own scratch; a task that gets none leaves the rest of the problem to the error that follows.
void run_on_executor(const Tasks& tasks, const Executor& executor, std::size_t scratch_bytes) {
  struct Shared {
    const Tasks* tasks;
    std::size_t scratch_bytes;
    std::atomic<bool> failed{false};
  } shared{&tasks, scratch_bytes};
  const auto task = [](void* argument, std::int64_t index) {
    auto& s = *static_cast<Shared*>(argument);
    if (s.failed.load(std::memory_order_relaxed)) return;
    const Scratch scratch = allocate_scratch(s.scratch_bytes);
    if (scratch == nullptr) {
      s.failed.store(true, std::memory_order_relaxed);
    } else {
      const core::FloatEnvironment environment;
      s.tasks->execute(index, scratch.get());
    }
  };
  executor.run(executor.context, tasks.count(), task, &shared);
  if (shared.failed.load()) throw_out_of_memory(scratch_bytes);
}

void run_on_openmp(const Tasks& tasks, std::int64_t threads, std::size_t scratch_bytes) {
  const std::size_t bytes = scratch_bytes * static_cast<std::size_t>(threads);
  const Scratch scratch = allocate_scratch(bytes);
  if (scratch == nullptr) throw_out_of_memory(bytes);
  const std::int64_t count = tasks.count();
  if (threads == 1) {
    const core::FloatEnvironment environment;
    for (std::int64_t i = 0; i < count; ++i) tasks.execute(i, scratch.get());
    return;
  }
  // The team may be smaller than asked for: the loop is shared among those that come, and thread
  // numbers stay below the number asked for.
  const int team = static_cast<int>(threads);  // at most one per task that is worth it: see drive()
  // Whole (batch, kv head) pairs, a few for each thread: a thread gets the same ones in every call
  // and finds their rows in its cache. (2, 72, 4, 32) on two threads: 10.3 us instead of 12.2.
  const bool few_and_alike = tasks.row_blocks == 1 && count <= kTasksPerThread * threads;
#pragma omp parallel num_threads(team)
  {
    const core::FloatEnvironment environment;
    std::byte* const mine =
        scratch.get() + scratch_bytes * static_cast<std::size_t>(omp_get_thread_num());
    if (few_and_alike) {
#pragma omp for schedule(static) nowait
      for (std::int64_t i = 0; i < count; ++i) tasks.execute(i, mine);
    } else {
#pragma omp for schedule(dynamic, 1) nowait
      for (std::int64_t i = 0; i < count; ++i) tasks.execute(i, mine);
    }
  }
}

}  // namespace

int default_threads() noexcept { return omp_get_max_threads(); }

void drive(const core::Problem& problem, const core::RunContext& context, RunWork run) {
  if (problem.empty()) return;
  const std::int64_t threads =
      std::min(usable_threads(context.threads), worthwhile_threads(problem));

  Tasks tasks;
  tasks.problem = &problem;
  tasks.run = run;
  tasks.pairs = problem.batch * problem.heads_kv;
  tasks.rows = problem.seq_q * problem.group_size();
  tasks.rows_per_task = max_task_rows(problem.head_dim);
  tasks.cut(threads);
  const std::size_t bytes =
      scratch_bytes({problem.head_dim, std::min(tasks.rows, tasks.rows_per_task), problem.seq_k});
  if (context.executor.run != nullptr) {
    run_on_executor(tasks, context.executor, bytes);
  } else {
    run_on_openmp(tasks, std::min(threads, tasks.count()), bytes);
  }
}

}  // namespace qattn::cpu
