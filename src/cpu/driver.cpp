#include "cpu/driver.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "core/float_environment.hpp"
#include "cpu/decode_shape.hpp"
#include "cpu/scratch.hpp"
#include "cpu/threads.hpp"
#include "qattn/error.hpp"

namespace qattn::cpu {
namespace {

constexpr std::int64_t kMinRowsPerTask = 64;
// Tasks per thread below which rows are cut finer: with fewer, the last task leaves threads idle.
constexpr std::int64_t kTasksPerThread = 4;
// Rows of a pair up to which the keys are split.
constexpr std::int64_t kMaxSplitRows = 16;
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

// The tasks of a problem whose rows go from the keys to the stored output each in one task. Task 0
// is the heaviest: under a causal mask later rows see more keys.
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
  // Whole (batch, kv head) pairs, a few for each thread: a thread gets the same ones in every call
  // and finds their rows in its cache. (2, 72, 4, 32) on two threads: 10.3 us instead of 12.2.
  bool few_and_alike(std::int64_t threads) const noexcept {
    return row_blocks == 1 && count() <= kTasksPerThread * threads;
  }
  std::size_t scratch() const noexcept {
    return scratch_bytes({problem->head_dim, std::min(rows, rows_per_task), problem->seq_k});
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

// The tasks of few rows against many keys, first pass: one for each chunk of keys, over as many
// heads as leave enough tasks, since tokens lie in memory with their heads side by side.
struct ChunkTasks {
  const core::Problem* problem = nullptr;
  RunWork run = nullptr;
  Partials partials;
  std::int64_t heads_per_task = 0;
  std::int64_t head_blocks = 0;

  void cut(std::int64_t threads) noexcept {
    heads_per_task = std::min(problem->heads_kv, kMaxChunkHeads);
    head_blocks = (problem->heads_kv + heads_per_task - 1) / heads_per_task;
    while (threads > 1 && heads_per_task > 1 && count() < kTasksPerThread * threads) {
      heads_per_task = (heads_per_task + 1) / 2;
      head_blocks = (problem->heads_kv + heads_per_task - 1) / heads_per_task;
    }
  }
  std::int64_t count() const noexcept { return problem->batch * partials.chunks * head_blocks; }
  bool few_and_alike(std::int64_t) const noexcept { return false; }
  std::size_t scratch() const noexcept {
    const std::int64_t head_dim = problem->head_dim;
    // By kernel: heads one after another, or side by side.
    return std::max(scratch_bytes({head_dim, partials.rows, problem->seq_k}),
                    DecodeShape{head_dim, partials.rows, heads_per_task}.scratch_bytes());
  }
  void execute(std::int64_t index, std::byte* scratch) const noexcept {
    const std::int64_t chunks = index / head_blocks;
    Work work;
    work.problem = problem;
    work.step = Step::chunk;
    work.batch = chunks / partials.chunks;
    work.chunk = chunks % partials.chunks;
    work.head_kv = index % head_blocks * heads_per_task;
    work.head_count = std::min(heads_per_task, problem->heads_kv - work.head_kv);
    work.row_end = partials.rows;
    work.scratch = scratch;
    work.partials = partials;
    run(work);
  }
};

// The second pass: one task for each pair.
struct MergeTasks {
  const core::Problem* problem = nullptr;
  RunWork run = nullptr;
  Partials partials;

  std::int64_t count() const noexcept { return problem->batch * problem->heads_kv; }
  bool few_and_alike(std::int64_t) const noexcept { return false; }
  std::size_t scratch() const noexcept { return kScratchAlignment; }
  void execute(std::int64_t index, std::byte* scratch) const noexcept {
    Work work;
    work.problem = problem;
    work.step = Step::merge;
    work.batch = index / problem->heads_kv;
    work.head_kv = index % problem->heads_kv;
    work.row_end = partials.rows;
    work.scratch = scratch;
    work.partials = partials;
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
template <class AnyTasks>
void run_on_executor(const AnyTasks& tasks, const Executor& executor) {
  struct Shared {
    const AnyTasks* tasks;
    std::size_t scratch_bytes;
    std::atomic<bool> failed{false};
  } shared{&tasks, tasks.scratch()};
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
  if (shared.failed.load()) throw_out_of_memory(shared.scratch_bytes);
}

template <class AnyTasks>
void run_on_openmp(const AnyTasks& tasks, std::int64_t threads) {
  const std::size_t scratch_bytes = tasks.scratch();
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
  const bool few_and_alike = tasks.few_and_alike(threads);
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

template <class AnyTasks>
void run_tasks(const AnyTasks& tasks, const core::RunContext& context, std::int64_t threads) {
  if (context.executor.run != nullptr) {
    run_on_executor(tasks, context.executor);
  } else {
    run_on_openmp(tasks, std::min(threads, tasks.count()));
  }
}

// Whether the keys are split: their chunks then make enough tasks, however few the heads are.
bool splits(const core::Problem& problem) noexcept {
  return problem.rows() <= kMaxSplitRows && problem.visible_keys(problem.seq_q - 1) > kChunkKeys;
}

void drive_split(const core::Problem& problem, const core::RunContext& context,
                 std::int64_t threads, RunWork run) {
  Partials partials;
  partials.chunks = (problem.visible_keys(problem.seq_q - 1) + kChunkKeys - 1) / kChunkKeys;
  partials.rows = problem.rows();
  partials.columns = padded_columns(problem.head_dim);
  const std::size_t bytes = partials.bytes(problem.batch * problem.heads_kv);
  const Scratch states = allocate_scratch(bytes);
  if (states == nullptr) throw_out_of_memory(bytes);
  partials.data = reinterpret_cast<float*>(states.get());
  ChunkTasks chunks{&problem, run, partials};
  chunks.cut(threads);
  run_tasks(chunks, context, threads);
  run_tasks(MergeTasks{&problem, run, partials}, context, threads);
}

}  // namespace

void drive(const core::Problem& problem, const core::RunContext& context, RunWork run) {
  if (problem.empty()) return;
  const std::int64_t threads =
      std::min(usable_threads(context.threads), worthwhile_threads(problem));

  if (splits(problem)) return drive_split(problem, context, threads, run);
  Tasks tasks;
  tasks.problem = &problem;
  tasks.run = run;
  tasks.pairs = problem.batch * problem.heads_kv;
  tasks.rows = problem.rows();
  tasks.rows_per_task = max_task_rows(problem.head_dim);
  tasks.cut(threads);
  run_tasks(tasks, context, threads);
}

}  // namespace qattn::cpu
