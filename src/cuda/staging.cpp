#include "cuda/staging.hpp"

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "cuda/memory.hpp"
#include "cuda/relaxed_capture.hpp"
#include "cuda/staging/pipeline.hpp"
#include "cuda/staging/plan.hpp"
#include "cuda/staging/transfer.hpp"
#include "qattn/error.hpp"

namespace qattn::cuda {
namespace {

using staging::HostRows;
using staging::Plan;
using staging::StagedTensor;

// From here on threads, which take some 100 us to start, copy a problem faster than the driver
// does, with a few GB/s.
constexpr std::size_t kPipelineBytes = 8U << 20U;
// The first part's way to the device and the last one's way back overlap with nothing: an eighth
// each. Parts are large enough to keep the device busy.
constexpr std::size_t kMaxParts = 8;
constexpr std::size_t kPartBytes = 8U << 20U;

using HostMemory = std::vector<std::unique_ptr<std::byte[]>>;

std::byte* add_memory(HostMemory& memory, std::int64_t bytes) {
  memory.emplace_back(new (std::nothrow) std::byte[static_cast<std::size_t>(bytes)]);
  if (memory.back() == nullptr) {
    throw Error(ErrorCode::out_of_memory,
                "no host memory for a contiguous copy of " + std::to_string(bytes) + " bytes");
  }
  return memory.back().get();
}

void send_tensor(const StagedTensor& tensor, std::byte* device, cudaStream_t stream,
                 HostMemory& copies) {
  const std::int64_t bytes = tensor.rows.bytes();
  const std::byte* from = tensor.rows.data;
  if (!tensor.rows.is_packed() && bytes != 0) {
    std::byte* copy = add_memory(copies, bytes);
    gather(tensor.rows, 0, bytes, copy);
    from = copy;
  }
  staging::send(from, device + tensor.offset, bytes, stream, tensor.what);
}

// What has come back and is to be spread over the rows of an output.
struct Returned {
  const HostRows* rows;
  const std::byte* packed;
};

void fetch_tensor(const StagedTensor& tensor, const std::byte* device, cudaStream_t stream,
                  HostMemory& copies, std::vector<Returned>& returned) {
  const std::int64_t bytes = tensor.rows.bytes();
  std::byte* to = tensor.rows.data;
  if (!tensor.rows.is_packed()) {
    to = add_memory(copies, bytes);
    returned.push_back({&tensor.rows, to});
  }
  staging::fetch(device + tensor.offset, to, bytes, stream, tensor.what);
}

// One thing after the other on the caller's stream.
void run_in_sequence(const Plan& plan, const LaunchTarget& target, Launcher launch) {
  HostMemory copies;
  std::vector<Returned> returned;
  staging::WaitAtExit finish(target.stream);
  {
    const StreamMemory memory(target.ordinal, target.stream, plan.bytes());
    send_scales(plan, memory.data(), target.stream);
    for (const staging::Part& part : plan.parts()) {
      for (const StagedTensor& tensor : part.inputs) {
        send_tensor(tensor, memory.data(), target.stream, copies);
      }
      launch(plan.on_device(part, memory.data()), target);
      for (const StagedTensor& tensor : part.outputs) {
        fetch_tensor(tensor, memory.data(), target.stream, copies, returned);
      }
    }
  }
  finish.wait("waiting for the result");
  for (const Returned& output : returned) {
    scatter(*output.rows, 0, output.rows->bytes(), output.packed);
  }
}

void refuse_capture(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &status);
  // The legacy stream reports a capture elsewhere that it must not interfere with by an error.
  if (error == cudaErrorStreamCaptureImplicit ||
      (error == cudaSuccess && status != cudaStreamCaptureStatusNone)) {
    throw Error(ErrorCode::unsupported,
                "q, k, v and out are in host memory while a CUDA stream is being captured "
                "(allowed: device memory)");
  }
  check(error, "looking at the stream");
}

}  // namespace

void run_staged(const core::Problem& problem, const LaunchTarget& target, Launcher launch) {
  refuse_capture(target.stream);
  const RelaxedCapture relaxed;
  const Plan plan(problem, kPartBytes, kMaxParts);
  const bool done = plan.bytes() >= kPipelineBytes && run_in_pipeline(plan, target, launch);
  if (!done) run_in_sequence(plan, target, launch);
}

}  // namespace qattn::cuda
