// What this binary can do on this machine, and why a kernel is chosen.
#pragma once

#include <string>
#include <vector>

#include "qattn/device.hpp"
#include "qattn/export.hpp"
#include "qattn/options.hpp"
#include "qattn/tensor.hpp"

namespace qattn {

/// A kernel of the table and whether it can run on a device of this machine.
struct KernelStatus {
  std::string name;  ///< "cpu/avx2": also the value of Options::kernel and QATTN_KERNEL
  bool usable = false;
  std::string reason;  ///< why it is not usable; empty if it is
};

/// The kernels for `device`, best first. Looks only: the permission that AMX needs is asked for by
/// the first forward() that is to run its kernel, which counts as usable until the OS has refused.
QATTN_API std::vector<KernelStatus> kernels(const Device& device);

/// Why a kernel was chosen: the chosen one, and for each one before it the reason it was passed
/// over.
struct Explanation {
  std::string kernel;                     ///< chosen kernel; empty if there is none
  std::vector<KernelStatus> passed_over;  ///< in table order
  std::string error;                      ///< what forward() would throw; empty if it would run
  /// Several lines for a person to read.
  QATTN_API std::string to_string() const;
};

/// Explains what forward() would do with these arguments. Tensor data is not read. Should the OS
/// refuse the permission that AMX needs when forward() asks, the next kernel runs, and later
/// explanations say so. Throws Error(invalid_argument) for arguments that forward() refuses before
/// it selects a kernel.
QATTN_API Explanation explain(const Device& device, const Int8Tensor& q, const Int8Tensor& k,
                              const Int8Tensor& v, const OutputTensor& out,
                              const Options& options = {});

/// A CUDA device of this machine.
struct CudaDeviceInfo {
  int ordinal = 0;
  std::string name;
  int capability_major = 0;
  int capability_minor = 0;
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
};

/// This machine as the library sees it.
struct MachineInfo {
  std::string cpu;                        ///< brand string of the processor
  std::vector<std::string> cpu_features;  ///< features that kernels may need and CPU and OS grant
  int cpu_threads = 0;                    ///< threads that OpenMP would use
  std::string cuda;                       ///< "available", or why CUDA is not
  int cuda_driver = 0;                    ///< as cudaDriverGetVersion: 1000 * major + 10 * minor
  int cuda_runtime = 0;                   ///< of the runtime linked into the library; 0: none
  std::vector<CudaDeviceInfo> cuda_devices;
};

/// Looks at the machine. Initialises CUDA where a driver is present.
QATTN_API MachineInfo machine_info();

}  // namespace qattn
