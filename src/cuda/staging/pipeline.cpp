#include "cuda/staging/pipeline.hpp"

#include <sched.h>

#include <algorithm>
#include <system_error>
#include <thread>

#include "cuda/context_guard.hpp"
#include "cuda/memory.hpp"
#include "cuda/relaxed_capture.hpp"
#include "cuda/staging/jobs.hpp"
#include "cuda/staging/pool.hpp"
#include "cuda/staging/transfer.hpp"

namespace qattn::cuda::staging {
namespace {

// One thread copies some 10 GB/s of what the caller's memory and a buffer give and take; a bus of
// 50 GB/s is busy with four. Fewer where the caller or the machine has fewer; on one processor two,
// one of which copies while the other waits.
constexpr int kMaxThreads = 4;
// Rows that the device fetches and writes itself: shorter ones are slower than through a buffer.
constexpr std::int64_t kDirectRowBytes = 1024;
constexpr std::int64_t kMaxPitch = 2147483647;  // of a copy of rows

int thread_count(int limit) noexcept {
  cpu_set_t set;
  const int processors = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const int wanted = std::clamp(processors, 2, kMaxThreads);
  return limit > 0 ? std::min(limit, wanted) : wanted;
}

// Memory that the device can read and write: page-locked, or managed.
bool is_reachable(const void* pointer) noexcept {
  cudaPointerAttributes attributes = {};
  return cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess &&
         (attributes.type == cudaMemoryTypeHost || attributes.type == cudaMemoryTypeManaged);
}

bool is_direct(const HostRows& rows) {
  const bool packed = rows.is_packed();
  const bool one_dimension = rows.count[0] == 1 && rows.count[1] == 1 &&
                             rows.row_bytes >= kDirectRowBytes &&
                             rows.stride[2] >= rows.row_bytes && rows.stride[2] <= kMaxPitch;
  return (packed || one_dimension) && is_reachable(rows.data) && is_reachable(rows.end() - 1);
}

void send_directly(const StagedTensor& tensor, std::byte* device, cudaStream_t stream) {
  const HostRows& rows = tensor.rows;
  if (rows.is_packed()) return send(rows.data, device, rows.bytes(), stream, tensor.what);
  const auto width = static_cast<std::size_t>(rows.row_bytes);
  check(cudaMemcpy2DAsync(device, width, rows.data, static_cast<std::size_t>(rows.stride[2]), width,
                          static_cast<std::size_t>(rows.count[2]), cudaMemcpyHostToDevice, stream),
        tensor.what);
}

void fetch_directly(const StagedTensor& tensor, const std::byte* device, cudaStream_t stream) {
  const HostRows& rows = tensor.rows;
  if (rows.is_packed()) return fetch(device, rows.data, rows.bytes(), stream, tensor.what);
  const auto width = static_cast<std::size_t>(rows.row_bytes);
  check(cudaMemcpy2DAsync(rows.data, static_cast<std::size_t>(rows.stride[2]), device, width, width,
                          static_cast<std::size_t>(rows.count[2]), cudaMemcpyDeviceToHost, stream),
        tensor.what);
}

/// The threads of a call and what they share. Every copy is waited for by the thread that made it:
/// its buffer is free again then, and no stream has to wait for another one.
class Pipeline {
 public:
  Pipeline(const Plan& plan, std::byte* memory, const LaunchTarget& target, Launcher launch)
      : plan_(plan),
        memory_(memory),
        target_(target),
        launch_(launch),
        computed_(plan.parts().size()),
        jobs_(plan, kBufferBytes, &is_direct, &Pipeline::is_computed, this) {
    target_.stream = compute_.get();
  }

  /// As run_in_pipeline(). Nothing is in flight when it returns or throws.
  bool run() {
    std::vector<std::thread> threads;
    const int count = thread_count(target_.threads);
    threads.reserve(static_cast<std::size_t>(count));
    try {
      for (int i = 0; i < count; ++i) threads.emplace_back(&Pipeline::work, this);
    } catch (const std::system_error&) {
      // Fewer threads do as well.
    }
    for (std::thread& thread : threads) thread.join();
    static_cast<void>(cudaStreamSynchronize(compute_.get()));  // after an error it may be busy
    return jobs_.finished();
  }

 private:
  // Called by threads of ours alone: cudaErrorNotReady becomes the thread's pending error.
  static bool is_computed(void* self, std::size_t part) {
    const Pipeline& pipeline = *static_cast<Pipeline*>(self);
    return cudaEventQuery(pipeline.computed_[part].get()) != cudaErrorNotReady;
  }

  void work() noexcept {
    try {
      const ContextGuard context(context_);
      const RelaxedCapture relaxed;
      const PinnedBuffer buffer;
      if (buffer.data() == nullptr) return;
      const PooledStream stream;
      const WaitAtExit idle(stream.get());
      while (const std::optional<Jobs::Job> job = jobs_.next()) {
        if (job->sends) {
          send_piece(job->piece, buffer.data(), stream.get());
        } else {
          fetch_piece(job->piece, buffer.data(), stream.get());
        }
      }
    } catch (...) {
      jobs_.fail(std::current_exception());
    }
  }

  void send_piece(const Piece& piece, std::byte* buffer, cudaStream_t stream) {
    const StagedTensor& tensor = *piece.tensor;
    std::byte* device = memory_ + tensor.offset + piece.begin;
    if (piece.direct) {
      send_directly(tensor, device, stream);
    } else {
      gather(tensor.rows, piece.begin, piece.end, buffer);
      send(buffer, device, piece.end - piece.begin, stream, tensor.what);
    }
    check(cudaStreamSynchronize(stream), tensor.what);
    if (jobs_.sent(piece)) launch_part(piece.part);
  }

  // One at a time: launches may share the caller's workspace, in the order of the stream.
  void launch_part(std::size_t part) {
    {
      const std::lock_guard<std::mutex> lock(launch_mutex_);
      launch_(plan_.on_device(plan_.parts()[part], memory_), target_);
      check(cudaEventRecord(computed_[part].get(), target_.stream), "recording an event");
    }
    jobs_.launched(part);
  }

  void fetch_piece(const Piece& piece, std::byte* buffer, cudaStream_t stream) {
    const StagedTensor& tensor = *piece.tensor;
    std::byte* device = memory_ + tensor.offset + piece.begin;
    check(cudaEventSynchronize(computed_[piece.part].get()), "waiting for the result");
    if (piece.direct) {
      fetch_directly(tensor, device, stream);
      check(cudaStreamSynchronize(stream), tensor.what);
    } else {
      fetch(device, buffer, piece.end - piece.begin, stream, tensor.what);
      check(cudaStreamSynchronize(stream), tensor.what);
      scatter(tensor.rows, piece.begin, piece.end, buffer);
    }
    jobs_.fetched();
  }

  const Plan& plan_;
  std::byte* memory_;
  LaunchTarget target_;
  Launcher launch_;
  void* context_ = current_context();
  const PooledStream compute_;
  const std::vector<Event> computed_;  // of each part
  std::mutex launch_mutex_;
  Jobs jobs_;
};

}  // namespace

bool run_in_pipeline(const Plan& plan, const LaunchTarget& target, Launcher launch) {
  WaitAtExit ready(target.stream);
  const StreamMemory memory(target.ordinal, target.stream, plan.bytes());
  send_scales(plan, memory.data(), target.stream);
  ready.wait("waiting for the stream");  // the threads have streams of their own
  return Pipeline(plan, memory.data(), target, launch).run();
}

}  // namespace qattn::cuda::staging
