// The contract between the driver (compiled for the baseline) and the ISA objects: plain data, one
// function each. An ISA object allocates nothing, throws nothing and starts no thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/problem.hpp"
#include "cpu/partials.hpp"

namespace qattn::cpu {

/// Keys whose probabilities share one maximum, and keys of a fixed split; both counted from key 0.
/// docs/numerics.md: the bits of a result depend on these two numbers and on nothing else here.
inline constexpr std::int64_t kGroupKeys = 128;
inline constexpr std::int64_t kChunkKeys = 2048;

/// What a task does.
enum class Step : std::uint8_t {
  whole,  // rows of a pair, from the keys to the stored output
  chunk,  // all rows of some pairs, over one chunk of keys: their states go to `partials`
  merge,  // joins the states of all chunks of a pair and stores the output
};

/// One task: rows [row_begin, row_end) of the (batch, kv head) pair. Row r is query r / group_size
/// of query head head_kv * group_size + r % group_size.
struct Work {
  const core::Problem* problem = nullptr;
  Step step = Step::whole;
  std::int64_t batch = 0;
  std::int64_t head_kv = 0;
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;      // at most row_begin + max_task_rows(head_dim)
  std::byte* scratch = nullptr;  // scratch_bytes() bytes, 64-byte aligned; not for Step::merge
  // Only for the steps after `whole`, whose rows are all rows of a pair.
  std::int64_t head_count = 1;  // kv heads from head_kv on, for Step::chunk
  std::int64_t chunk = 0;
  Partials partials;
};

/// Rows of a task at most: K and V are packed once per task and reused by all of its rows, whose
/// state (a megabyte) comes from the L2 cache once for every chunk of keys.
constexpr std::int64_t max_task_rows(std::int64_t head_dim) noexcept {
  return head_dim <= 128 ? 2048 : 1024;
}

using RunWork = void (*)(const Work&);

}  // namespace qattn::cpu
