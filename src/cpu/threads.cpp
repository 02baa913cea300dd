#include "cpu/threads.hpp"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>

namespace qattn::cpu {
namespace {

std::atomic<bool> forked_child{false};

// At load: others in the process may use OpenMP and fork before the library is first called.
const bool watching = pthread_atfork(nullptr, nullptr, [] { forked_child.store(true); }) == 0;

}  // namespace

int default_threads() noexcept { return std::min(omp_get_max_threads(), omp_get_thread_limit()); }

std::int64_t usable_threads(int requested) noexcept {
  if (!watching || forked_child.load() || omp_in_parallel() != 0) return 1;
  return requested > 0 ? requested : default_threads();
}

}  // namespace qattn::cpu
