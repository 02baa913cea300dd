// What a problem in host memory needs of the device: its parts, and where their tensors go.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "core/problem.hpp"
#include "cuda/staging/host_rows.hpp"

namespace qattn::cuda::staging {

/// A tensor: its bytes in host memory and, packed, on the device.
struct StagedTensor {
  const char* what = "";  // "copying q to the device"
  HostRows rows;
  std::size_t offset = 0;  // into the plan's memory
};

/// A problem of its own: some batch entries and key/value heads with their query heads. Rows of the
/// output do not depend on what is computed beside them.
struct Part {
  core::Problem problem;  // its pointers are those of the whole problem
  std::array<StagedTensor, 3> inputs;
  std::array<StagedTensor, 2> outputs;  // out, and lse, of no bytes where none is asked for
  std::int64_t first_head_kv = 0;
};

/// A problem, cut into parts that can follow each other through the device: while one computes, the
/// next is sent and the results of the one before come back. All of it lies in one allocation.
class Plan {
 public:
  /// At most `max_parts` parts of `part_bytes` or more. Throws Error(out_of_memory) where the
  /// tensors, packed, have more bytes than a machine can have.
  Plan(const core::Problem& problem, std::size_t part_bytes, std::size_t max_parts);

  const std::vector<Part>& parts() const noexcept { return parts_; }
  /// Device memory for everything, in bytes.
  std::size_t bytes() const noexcept { return bytes_; }
  /// The scale arrays of q, k and v: for all parts together.
  const std::array<StagedTensor, 3>& scales() const noexcept { return scales_; }
  /// The part with the pointers of its copies, in `memory` of bytes() bytes.
  core::Problem on_device(const Part& part, std::byte* memory) const noexcept;

 private:
  std::size_t reserve(std::size_t bytes);
  StagedTensor scale_tensor(const char* what, const float* scale, std::int64_t heads);
  StagedTensor tensor(const char* what, const HostRows& rows);
  void add_part(const core::Problem& whole, std::int64_t batch, std::int64_t batches,
                std::int64_t head, std::int64_t heads);

  std::size_t bytes_ = 0;
  std::array<StagedTensor, 3> scales_;
  std::vector<Part> parts_;
};

}  // namespace qattn::cuda::staging
