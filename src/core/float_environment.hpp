// The floating-point environment that the numerics assume.
#pragma once

#include <cfenv>

namespace qattn::core {

/// Puts the thread into the default floating-point environment (round to nearest even, no exception
/// traps; on x86 subnormals are neither flushed nor read as zero) and restores what was there.
class FloatEnvironment {
 public:
  FloatEnvironment() noexcept {
    std::fegetenv(&caller_);
    std::fesetenv(FE_DFL_ENV);
#if defined(__SSE2__)
    __builtin_ia32_ldmxcsr(kDefaultMxcsr);
#endif
  }
  ~FloatEnvironment() { std::fesetenv(&caller_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
#if defined(__SSE2__)
  // C libraries differ in whether FE_DFL_ENV clears FTZ and DAZ. All exceptions masked, the rest 0.
  static constexpr unsigned kDefaultMxcsr = 0x1F80;
#endif
  std::fenv_t caller_;
};

}  // namespace qattn::core
