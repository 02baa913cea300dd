#include "dispatch/table.hpp"

#include <type_traits>

#include "cpu/driver.hpp"
#include "reference/float64.hpp"

// Entry points of the kernels in this build. An ISA object exports its function with C linkage, so
// that its name can be kept while all else in the object is made local.
#define QATTN_CPU_KERNEL(kernel, processor, flags) \
  extern "C" void qattn_cpu_##kernel##_run(const qattn::cpu::Work&);
#define QATTN_CUDA_KERNEL(kernel, architectures, needed, rows)      \
  namespace qattn::cuda {                                           \
  void run_##kernel(const core::Problem&, const core::RunContext&); \
  }
#define QATTN_REFERENCE_KERNEL(kernel)
#include "dispatch/kernels.inc"
#undef QATTN_CPU_KERNEL
#undef QATTN_CUDA_KERNEL
#undef QATTN_REFERENCE_KERNEL
namespace qattn::cuda {
std::size_t attention_workspace_bytes(const core::Problem&);  // of every kernel
}

namespace qattn::dispatch {
namespace {

using core::Extra;
using core::Kernel;

// Output types beside float32 that the CUDA kernels and the reference write.
constexpr core::ExtraSet kShortOutputs =
    core::ExtraSet{}.with(Extra::float16_output).with(Extra::bfloat16_output);

template <cpu::RunWork Run>
void run_cpu(const core::Problem& problem, const core::RunContext& context) {
  cpu::drive(problem, context, Run);
}

// A row's entry point: a function, or null where this build lacks the kernel. Which it is shows in
// its type: under -fsanitize=undefined GCC does not take a function's address for a constant when
// it is compared with null (GCC bug 71962).
template <typename Run>
constexpr bool kAbsent = std::is_null_pointer_v<Run>;

template <typename Run>
constexpr Kernel cpu_kernel(std::string_view name, std::string_view flags, Run run) {
  Kernel kernel;
  kernel.name = name;
  kernel.needs = core::features_from_flags(flags);
  kernel.run = run;
  if (kAbsent<Run>) kernel.absent_reason = "this build is for another processor";
  return kernel;
}

template <typename Run>
constexpr Kernel cuda_kernel(std::string_view name, core::Feature needed, std::int64_t rows,
                             Run run) {
  Kernel kernel;
  kernel.name = name;
  kernel.device = Device::Kind::cuda;
  kernel.needs = core::FeatureSet{}.with(needed);
  kernel.limits.extras = kShortOutputs;
  kernel.preferred_rows = rows;
  kernel.run = run;
  if constexpr (kAbsent<Run>) {
    kernel.absent_reason = "this build has no CUDA kernels";
  } else {
    kernel.workspace = &cuda::attention_workspace_bytes;
  }
  return kernel;
}

constexpr Kernel reference_kernel(std::string_view name, core::RunFunction run) {
  Kernel kernel;
  kernel.name = name;
  kernel.limits.extras = kShortOutputs;
  kernel.run = run;
  kernel.automatic = false;
  return kernel;
}

// The address of a kernel that this build lacks is never taken, so nothing needs to define it.
#define QATTN_RUN_ON_any(run) (&run_cpu<&(run)>)
#if defined(__x86_64__)
#define QATTN_RUN_ON_x86_64(run) (&run_cpu<&(run)>)
#else
#define QATTN_RUN_ON_x86_64(run) nullptr
#endif
#if QATTN_WITH_CUDA
#define QATTN_RUN_ON_CUDA(run) (&(run))
#else
#define QATTN_RUN_ON_CUDA(run) nullptr
#endif

#define QATTN_CPU_KERNEL(kernel, processor, flags) \
  cpu_kernel("cpu/" #kernel, flags, QATTN_RUN_ON_##processor(qattn_cpu_##kernel##_run)),
#define QATTN_CUDA_KERNEL(kernel, architectures, needed, rows) \
  cuda_kernel("cuda/" #kernel, core::Feature::needed, rows, QATTN_RUN_ON_CUDA(cuda::run_##kernel)),
#define QATTN_REFERENCE_KERNEL(kernel) \
  reference_kernel("reference/" #kernel, &reference::run_##kernel),

constexpr Kernel kTable[] = {
#include "dispatch/kernels.inc"
};

}  // namespace

std::span<const Kernel> table() noexcept { return kTable; }

}  // namespace qattn::dispatch
