// ceiling/memory_read: the rate at which this machine reads memory, caches excluded.
#include <omp.h>

#include "isa_table.hpp"
#include "rows.hpp"

namespace qattn::bench {
namespace {

// A row reads one slice for each iteration and comes back to it when more than 1 GiB of others has
// gone through the caches: the L3 holds 300 MB on some machines.
constexpr std::int64_t kSliceBytes = std::int64_t{256} << 20;
constexpr std::int64_t kSlices = 5;

void run_memory_read(benchmark::State& state, Threads threads) {
  const Buffer<std::int8_t> memory = [] {
    Buffer<std::int8_t> buffer(Device::cpu(), kSliceBytes * kSlices);
    fill_random(buffer.data(), kSliceBytes * kSlices, 0);
    return buffer;
  }();
  static const ReadFunction read = best_of<ReadFunction>("memory");
  constexpr std::int64_t kBlocks = kSliceBytes / kReadMultiple;
  std::int64_t slice = 0;
  int team = 0;
  for ([[maybe_unused]] auto _ : state) {
    const std::int8_t* data = memory.data() + slice * kSliceBytes;
    std::uint64_t sum = 0;
#pragma omp parallel num_threads(thread_count(threads)) reduction(+ : sum)
    {
      const std::int64_t begin = kBlocks * omp_get_thread_num() / omp_get_num_threads();
      const std::int64_t end = kBlocks * (omp_get_thread_num() + 1) / omp_get_num_threads();
      sum += read(data + begin * kReadMultiple, (end - begin) * kReadMultiple);
#pragma omp single nowait
      team = omp_get_num_threads();
    }
    benchmark::DoNotOptimize(sum);
    slice = (slice + 1) % kSlices;
  }
  count_bytes(state, static_cast<double>(kSliceBytes), team);
}

}  // namespace

void register_memory_rows() {
  for (const Threads threads : kBothThreadCounts) {
    add_row(first_word("ceiling", threads) + "/memory_read",
            [threads](benchmark::State& state) { run_memory_read(state, threads); });
  }
}

}  // namespace qattn::bench
