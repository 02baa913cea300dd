#include "cuda/staging/jobs.hpp"

#include <algorithm>
#include <utility>

namespace qattn::cuda::staging {

Jobs::Jobs(const Plan& plan, std::int64_t piece_bytes, IsDirect is_direct, IsComputed is_computed,
           void* context)
    : is_computed_(is_computed), context_(context) {
  for (std::size_t part = 0; part < plan.parts().size(); ++part) {
    const std::size_t before = inputs_.size();
    for (const StagedTensor& tensor : plan.parts()[part].inputs) {
      add(inputs_, part, tensor, piece_bytes, is_direct);
    }
    for (const StagedTensor& tensor : plan.parts()[part].outputs) {
      add(results_, part, tensor, piece_bytes, is_direct);
    }
    inputs_left_.push_back(inputs_.size() - before);
  }
  launched_.resize(plan.parts().size(), false);
}

void Jobs::add(std::vector<Piece>& pieces, std::size_t part, const StagedTensor& tensor,
               std::int64_t piece_bytes, IsDirect is_direct) {
  const std::int64_t bytes = tensor.rows.bytes();
  if (bytes == 0) return;
  if (is_direct(tensor.rows)) {
    pieces.push_back({part, &tensor, true, 0, bytes});
    return;
  }
  for (std::int64_t begin = 0; begin < bytes; begin += piece_bytes) {
    pieces.push_back({part, &tensor, false, begin, std::min(begin + piece_bytes, bytes)});
  }
}

std::optional<Jobs::Job> Jobs::next() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (error_ != nullptr) return std::nullopt;
    const bool inputs = next_input_ < inputs_.size();
    const bool results = next_result_ < results_.size();
    if (!inputs && !results) return std::nullopt;
    const std::size_t part = results ? results_[next_result_].part : 0;
    const bool running = results && launched_[part];
    if (running && (!inputs || is_computed_(context_, part))) {
      return Job{false, results_[next_result_++]};
    }
    if (inputs) return Job{true, inputs_[next_input_++]};
    changed_.wait(lock);
  }
}

bool Jobs::sent(const Piece& piece) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return --inputs_left_[piece.part] == 0;
}

void Jobs::launched(std::size_t part) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    launched_[part] = true;
  }
  changed_.notify_all();
}

void Jobs::fetched() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++in_place_;
}

void Jobs::fail(std::exception_ptr error) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_ == nullptr) error_ = std::move(error);
  }
  changed_.notify_all();
}

bool Jobs::finished() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_ != nullptr) std::rethrow_exception(error_);
  return in_place_ == results_.size();
}

bool Jobs::started() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return next_input_ > 0;
}

}  // namespace qattn::cuda::staging
