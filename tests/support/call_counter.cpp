#include "support/call_counter.hpp"

#include <atomic>

#include "cpu/work.hpp"

// The linker resolves the table's reference to qattn_cpu_avx2_run to __wrap_qattn_cpu_avx2_run, and
// __real_qattn_cpu_avx2_run to the kernel. Rows for another processor expand to nothing, as in the
// table of the library.
#define QATTN_TEST_IF_any(code) code
#if defined(__x86_64__)
#define QATTN_TEST_IF_x86_64(code) code
#else
#define QATTN_TEST_IF_x86_64(code)
#endif
#define QATTN_CUDA_KERNEL(...)
#define QATTN_REFERENCE_KERNEL(...)

#define QATTN_TEST_WRAP(kernel)                                                   \
  static std::atomic<std::int64_t> calls_of_##kernel{0};                          \
  extern "C" void __real_qattn_cpu_##kernel##_run(const qattn::cpu::Work&);       \
  extern "C" void __wrap_qattn_cpu_##kernel##_run(const qattn::cpu::Work& work) { \
    calls_of_##kernel.fetch_add(1, std::memory_order_relaxed);                    \
    __real_qattn_cpu_##kernel##_run(work);                                        \
  }
#define QATTN_CPU_KERNEL(kernel, processor, flags) \
  QATTN_TEST_IF_##processor(QATTN_TEST_WRAP(kernel))
#include "dispatch/kernels.inc"
#undef QATTN_CPU_KERNEL

namespace qattn::test {

std::vector<CallCount> call_counts() {
  std::vector<CallCount> counts;
#define QATTN_TEST_APPEND(kernel) counts.push_back({"cpu/" #kernel, calls_of_##kernel});
#define QATTN_CPU_KERNEL(kernel, processor, flags) \
  QATTN_TEST_IF_##processor(QATTN_TEST_APPEND(kernel))
#include "dispatch/kernels.inc"
#undef QATTN_CPU_KERNEL
  return counts;
}

std::string CallWatch::ran() const {
  std::string names;
  const std::vector<CallCount> now = call_counts();
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].calls == before_[i].calls) continue;
    names += (names.empty() ? "" : " ") + now[i].kernel;
  }
  return names;
}

}  // namespace qattn::test
