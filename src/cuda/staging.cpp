#include "cuda/staging.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "cuda/error.hpp"
#include "cuda/memory.hpp"
#include "cuda/relaxed_capture.hpp"
#include "qattn/error.hpp"

namespace qattn::cuda {
namespace {

constexpr std::size_t kAlignment = 256;

[[noreturn]] void throw_too_large() {
  throw Error(ErrorCode::out_of_memory, "a tensor is too large to be copied to the device");
}

// Strides may overlap, so that a tensor has more elements than there is memory.
std::size_t product(std::size_t a, std::int64_t b) {
  std::size_t result = 0;
  if (__builtin_mul_overflow(a, static_cast<std::size_t>(b), &result)) throw_too_large();
  return result;
}

std::size_t element_count(const Shape& shape) {
  return product(product(product(static_cast<std::size_t>(shape.batch), shape.seq), shape.heads),
                 shape.head_dim);
}

// Offsets into one allocation.
class Plan {
 public:
  /// Reserves aligned bytes and returns their offset.
  std::size_t reserve(std::size_t bytes) {
    const std::size_t offset = bytes_;
    if (__builtin_add_overflow(bytes_, bytes, &bytes_) ||
        __builtin_add_overflow(bytes_, kAlignment - 1, &bytes_)) {
      throw_too_large();
    }
    bytes_ -= bytes_ % kAlignment;
    return offset;
  }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

// Waits before the scope's host memory goes: copies from and to it may be in flight on an error
// path.
class WaitAtExit {
 public:
  explicit WaitAtExit(cudaStream_t stream) noexcept : stream_(stream) {}
  ~WaitAtExit() {
    if (!done_) static_cast<void>(cudaStreamSynchronize(stream_));
  }
  WaitAtExit(const WaitAtExit&) = delete;
  WaitAtExit& operator=(const WaitAtExit&) = delete;
  void wait() {
    done_ = true;
    check(cudaStreamSynchronize(stream_), "waiting for the result");
  }

 private:
  cudaStream_t stream_;
  bool done_ = false;
};

template <typename T>
std::unique_ptr<T[]> host_memory(std::size_t count) {
  std::unique_ptr<T[]> memory(new (std::nothrow) T[count]);
  if (memory == nullptr) {
    throw Error(ErrorCode::out_of_memory,
                "no host memory for a contiguous copy of " + std::to_string(count) + " elements");
  }
  return memory;
}

bool is_contiguous(const Shape& shape, const Strides& strides) noexcept {
  const Strides packed = contiguous_strides(shape);
  return (shape.heads < 2 || strides.heads == packed.heads) &&
         (shape.seq < 2 || strides.seq == packed.seq) &&
         (shape.batch < 2 || strides.batch == packed.batch);
}

// Calls copy_row(packed offset, strided offset) for every row of head_dim elements.
template <typename CopyRow>
void for_each_row(const Shape& shape, const Strides& strides, CopyRow copy_row) {
  std::int64_t packed = 0;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t i = 0; i < shape.seq; ++i) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        copy_row(packed, b * strides.batch + i * strides.seq + h * strides.heads);
        packed += shape.head_dim;
      }
    }
  }
}

// An input tensor with its place on the device.
struct StagedInput {
  const char* what;
  Shape shape;
  core::InputRef ref;
  std::size_t data_offset;
  std::size_t scale_offset;
  std::unique_ptr<std::int8_t[]> packed = nullptr;
};

StagedInput plan_input(Plan& plan, const char* what, const Shape& shape,
                       const core::InputRef& ref) {
  const std::size_t data = plan.reserve(element_count(shape));
  const std::size_t scale = plan.reserve(product(sizeof(float), shape.heads));
  return {what, shape, ref, data, scale};
}

void send(const void* from, std::byte* to, std::size_t bytes, cudaStream_t stream,
          const char* what) {
  // Scales of k and v may be null where there are no keys; none is read then.
  if (bytes == 0 || from == nullptr) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), what);
}

/// Copies a tensor and its scales to the device and returns the view of the copy.
core::InputRef send_input(StagedInput& input, std::byte* device, cudaStream_t stream) {
  const std::size_t bytes = element_count(input.shape);
  const std::int8_t* from = input.ref.data;
  if (!is_contiguous(input.shape, input.ref.strides)) {
    input.packed = host_memory<std::int8_t>(bytes);
    for_each_row(input.shape, input.ref.strides, [&](std::int64_t packed, std::int64_t strided) {
      std::memcpy(input.packed.get() + packed, input.ref.data + strided,
                  static_cast<std::size_t>(input.shape.head_dim));
    });
    from = input.packed.get();
  }
  send(from, device + input.data_offset, bytes, stream, input.what);
  send(input.ref.scale, device + input.scale_offset,
       sizeof(float) * static_cast<std::size_t>(input.shape.heads), stream, input.what);
  core::InputRef ref;
  ref.data = reinterpret_cast<const std::int8_t*>(device + input.data_offset);
  ref.strides = contiguous_strides(input.shape);
  ref.scale = reinterpret_cast<const float*>(device + input.scale_offset);
  return ref;
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
  const cudaStream_t stream = target.stream;
  const Shape q_shape = {problem.batch, problem.seq_q, problem.heads_q, problem.head_dim};
  const Shape kv_shape = {problem.batch, problem.seq_k, problem.heads_kv, problem.head_dim};
  const std::size_t out_count = element_count(q_shape);
  const std::size_t lse_count =
      problem.lse == nullptr ? 0 : out_count / static_cast<std::size_t>(problem.head_dim);

  Plan plan;
  StagedInput q = plan_input(plan, "copying q to the device", q_shape, problem.q);
  StagedInput k = plan_input(plan, "copying k to the device", kv_shape, problem.k);
  StagedInput v = plan_input(plan, "copying v to the device", kv_shape, problem.v);
  const std::size_t out_offset = plan.reserve(product(out_count, sizeof(float)));
  const std::size_t lse_offset = plan.reserve(lse_count * sizeof(float));

  const bool packed_out = is_contiguous(q_shape, problem.out.strides);
  std::unique_ptr<float[]> host_out;
  if (!packed_out) host_out = host_memory<float>(out_count);

  WaitAtExit finish(stream);
  {
    const StreamMemory memory(target.ordinal, stream, plan.bytes());
    core::Problem staged = problem;
    staged.q = send_input(q, memory.data(), stream);
    staged.k = send_input(k, memory.data(), stream);
    staged.v = send_input(v, memory.data(), stream);
    staged.out.data = reinterpret_cast<float*>(memory.data() + out_offset);
    staged.out.strides = contiguous_strides(q_shape);
    if (lse_count != 0) staged.lse = reinterpret_cast<float*>(memory.data() + lse_offset);
    launch(staged, target);
    check(cudaMemcpyAsync(packed_out ? problem.out.data : host_out.get(), staged.out.data,
                          out_count * sizeof(float), cudaMemcpyDeviceToHost, stream),
          "copying out from the device");
    if (lse_count != 0) {
      check(cudaMemcpyAsync(problem.lse, staged.lse, lse_count * sizeof(float),
                            cudaMemcpyDeviceToHost, stream),
            "copying lse from the device");
    }
  }
  finish.wait();
  if (packed_out) return;
  for_each_row(q_shape, problem.out.strides, [&](std::int64_t packed, std::int64_t strided) {
    std::memcpy(problem.out.data + strided, host_out.get() + packed,
                sizeof(float) * static_cast<std::size_t>(problem.head_dim));
  });
}

}  // namespace qattn::cuda
