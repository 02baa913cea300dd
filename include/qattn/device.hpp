// Where attention runs.
#pragma once

#include <string>

#include "qattn/export.hpp"

namespace qattn {

/// A device, named by value: the CPU, or a CUDA device together with the stream that work goes on.
/// Making one allocates nothing and, except for best() and for_data(), touches no CUDA.
class QATTN_API Device {
 public:
  enum class Kind { cpu, cuda };

  /// This machine's CPU.
  static constexpr Device cpu() noexcept { return Device(Kind::cpu, 0, nullptr); }
  /// CUDA device `ordinal` (as the CUDA runtime counts, CUDA_VISIBLE_DEVICES applied) and `stream`,
  /// a cudaStream_t; null is the legacy default stream. Whether the device can be used shows when
  /// it is used: forward() then throws ErrorCode::device_unavailable with the reason.
  static constexpr Device cuda(int ordinal = 0, void* stream = nullptr) noexcept {
    return Device(Kind::cuda, ordinal, stream);
  }
  /// CUDA device 0 if a kernel of the library can run on it, else the CPU. Initialises CUDA where a
  /// driver is present (a child forked afterwards cannot use CUDA then: a rule of CUDA's own).
  static Device best() noexcept;
  /// The device in whose memory `pointer` lies: a CUDA device for its own and for managed memory,
  /// else the CPU. Does not initialise CUDA: where nothing has, no pointer can be a CUDA pointer.
  static Device for_data(const void* pointer) noexcept;

  constexpr Kind kind() const noexcept { return kind_; }
  /// CUDA ordinal; 0 on the CPU.
  constexpr int ordinal() const noexcept { return ordinal_; }
  /// cudaStream_t; null on the CPU.
  constexpr void* stream() const noexcept { return stream_; }
  /// "cpu" or "cuda:N".
  std::string name() const;

  /// Same kind and ordinal; the stream does not count.
  friend constexpr bool operator==(const Device& a, const Device& b) noexcept {
    return a.kind_ == b.kind_ && a.ordinal_ == b.ordinal_;
  }
  friend constexpr bool operator!=(const Device& a, const Device& b) noexcept { return !(a == b); }

 private:
  constexpr Device(Kind kind, int ordinal, void* stream) noexcept
      : kind_(kind), ordinal_(ordinal), stream_(stream) {}

  Kind kind_;
  int ordinal_;
  void* stream_;
};

}  // namespace qattn
