// The order in which threads send the parts of a plan and fetch their results.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "cuda/staging/plan.hpp"

namespace qattn::cuda::staging {

/// Bytes of a tensor that are copied at once: those of [begin, end), counted as if packed.
struct Piece {
  std::size_t part = 0;
  const StagedTensor* tensor = nullptr;
  bool direct = false;  // the host memory is page-locked and fits one copy by the device
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The pieces of a plan, handed out to threads. Inputs go in the order of the parts. A thread gets
/// results rather than inputs once these results are there, so that both directions of the bus are
/// busy. The first error ends it all.
class Jobs {
 public:
  /// Whether all of a tensor's rows can be copied without a buffer.
  using IsDirect = bool (*)(const HostRows& rows);
  /// Whether a part that has been launched has been computed.
  using IsComputed = bool (*)(void* context, std::size_t part);

  Jobs(const Plan& plan, std::int64_t piece_bytes, IsDirect is_direct, IsComputed is_computed,
       void* context);

  struct Job {
    bool sends;  // else it fetches; its part has been launched
    Piece piece;
  };
  /// What to do next; nothing: it is all handed out, or has failed. Waits where all that is left
  /// are results of parts that have not been launched.
  std::optional<Job> next();

  /// Counts an input that has arrived. True for the last of its part: the caller launches it.
  bool sent(const Piece& piece);
  void launched(std::size_t part);
  /// Counts a result that is in place.
  void fetched();

  void fail(std::exception_ptr error) noexcept;
  /// Whether every result is in place. Throws the first error. For when no thread is left.
  bool finished();
  /// Whether some piece has been handed out.
  bool started();

 private:
  void add(std::vector<Piece>& pieces, std::size_t part, const StagedTensor& tensor,
           std::int64_t piece_bytes, IsDirect is_direct);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Piece> inputs_, results_;
  std::size_t next_input_ = 0, next_result_ = 0, in_place_ = 0;
  std::vector<std::size_t> inputs_left_;  // of each part
  std::vector<bool> launched_;
  std::exception_ptr error_;
  IsComputed is_computed_;
  void* context_;
};

}  // namespace qattn::cuda::staging
