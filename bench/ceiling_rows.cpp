// ceiling/<instruction>: what the arithmetic units of this machine can do, measured in the same
// run.
#include <omp.h>

#include <array>
#include <string_view>

#include "isa_table.hpp"
#include "rows.hpp"

namespace qattn::bench {
namespace {

// Between 2 and 20 milliseconds of work: a parallel region costs nothing next to it.
constexpr std::int64_t kRounds = std::int64_t{1} << 20;

void run_ceiling(benchmark::State& state, CeilingFunction function, Threads threads) {
  alignas(64) std::array<std::int8_t, kCeilingDataBytes> data;
  fill_random(data.data(), kCeilingDataBytes, 0);
  double operations = 0;
  int team = 0;
  for ([[maybe_unused]] auto _ : state) {
#pragma omp parallel num_threads(thread_count(threads)) reduction(+ : operations)
    {
      alignas(64) std::array<std::int32_t, kCeilingSinkInts> sink;
      operations += function(kRounds, data.data(), sink.data());
      benchmark::DoNotOptimize(sink);
#pragma omp single nowait
      team = omp_get_num_threads();
    }
  }
  count_operations(state, operations / static_cast<double>(state.iterations()), team);
}

}  // namespace

void register_ceiling_rows() {
  for (const Threads threads : kBothThreadCounts) {
    std::string_view previous;
    for (const IsaEntry& entry : isa_table()) {
      const auto* function = std::get_if<CeilingFunction>(&entry.function);
      if (function == nullptr || entry.row == previous || !granted(entry.needs)) continue;
      previous = entry.row;
      add_row(
          first_word("ceiling", threads) + "/" + std::string(entry.row),
          [function, threads](benchmark::State& state) { run_ceiling(state, *function, threads); });
    }
  }
}

}  // namespace qattn::bench
