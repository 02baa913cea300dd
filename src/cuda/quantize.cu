// Per-head quantisation of device memory (the rule is stated in qattn/quantize.hpp).
//
// Small heads take one launch: a block reads a head twice. Large heads are spread over blocks:
// their largest magnitudes meet in the scale array, as bits, by an integer maximum whose result
// does not depend on the order; a launch of its own turns them into scales, the next one writes the
// entries.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "cuda/device_guard.hpp"
#include "cuda/error.hpp"
#include "cuda/quantize.hpp"
#include "cuda/relaxed_capture.hpp"
#include "qattn/error.hpp"

namespace qattn::cuda {
namespace {

// Threads of a block: many where it has a head to itself, and loads in flight are what counts.
constexpr int kHeadThreads = 1024;
constexpr int kThreads = 256;
constexpr std::uint32_t kMagnitude = 0x7FFFFFFFU;
constexpr std::uint32_t kInfinity = 0x7F800000U;

// Bytes of a vector load.
constexpr int kVectorBytes = 16;
// Elements of a head up to which one block, latency and all, beats four launches.
constexpr std::int64_t kElementsPerBlock = 32768;
// Blocks that keep a large GPU's memory busy.
constexpr std::int64_t kBlocks = 2048;

/// A launch. blockDim is (threads along a row, rows); blockIdx.x is the head, blockIdx.y the chunk.
struct Params {
  core::QuantizeProblem problem;
  std::int64_t rows = 0;
  // What the rows of a thread are apart, all chunks together: row_step rows are batch_step batch
  // entries and token_step tokens.
  std::int64_t row_step = 0;
  std::int64_t batch_step = 0;
  std::int64_t token_step = 0;
};

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

/// kCount elements that are loaded or stored at once.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T values[kCount];
};

/// The scale of a head from the bits of its largest magnitude; NaN where that is not finite. The
/// same bits as on the host.
__device__ __forceinline__ float scale_for(std::uint32_t largest_bits) {
  if (largest_bits == 0) return 1.0F;
  if (largest_bits >= kInfinity) return __int_as_float(0x7FC00000);
  const float largest = __uint_as_float(largest_bits);
  const float scale = __fdiv_rn(largest, 127.0F);
  if (__fdiv_rn(largest, scale) < 127.5F) return scale;
  return __uint_as_float(__float_as_uint(scale) + 1U);
}

/// The quotient is below 127.5 by the choice of the scale: adding 1.5 * 2^23 rounds it to the
/// nearest integer, ties to even, and leaves that integer in the low bits.
__device__ __forceinline__ std::int8_t quantized(float x, float scale) {
  return static_cast<std::int8_t>(__float_as_uint(__fadd_rn(__fdiv_rn(x, scale), 12582912.0F)));
}

/// Calls body(input offset, output offset) for the vectors of this thread.
template <int kCount, typename Body>
__device__ __forceinline__ void for_vectors(const Params& params, Body body) {
  const core::QuantizeProblem& p = params.problem;
  const std::int64_t head = blockIdx.x;
  std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  if (row >= params.rows) return;
  std::int64_t batch = row / p.seq;
  std::int64_t token = row % p.seq;
  for (; row < params.rows; row += params.row_step) {
    const std::int64_t in =
        batch * p.input_strides.batch + token * p.input_strides.seq + head * p.input_strides.heads;
    const std::int64_t out =
        batch * p.out_strides.batch + token * p.out_strides.seq + head * p.out_strides.heads;
    for (std::int64_t d = std::int64_t{threadIdx.x} * kCount; d < p.head_dim;
         d += std::int64_t{blockDim.x} * kCount) {
      body(in + d, out + d);
    }
    batch += params.batch_step;
    token += params.token_step;
    if (token >= p.seq) {
      token -= p.seq;
      ++batch;
    }
  }
}

/// Bits of the largest magnitude that the block's threads see; the same in all of them.
template <typename T, int kCount, int kBlockThreads>
__device__ __forceinline__ std::uint32_t largest_of_block(const Params& params) {
  const T* input = static_cast<const T*>(params.problem.input);
  std::uint32_t largest = 0;
  for_vectors<kCount>(params, [&](std::int64_t in, std::int64_t) {
    const auto x = *reinterpret_cast<const Vector<T, kCount>*>(input + in);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      largest = max(largest, __float_as_uint(widen(x.values[i])) & kMagnitude);
    }
  });
  __shared__ std::uint32_t of_warp[kBlockThreads / 32];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  largest = __reduce_max_sync(0xFFFFFFFFU, largest);
  if (thread % 32 == 0) of_warp[thread / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kBlockThreads / 32; ++warp) largest = max(largest, of_warp[warp]);
  return largest;
}

template <typename T, int kCount>
__device__ __forceinline__ void write_block(const Params& params, float scale) {
  const T* input = static_cast<const T*>(params.problem.input);
  const bool finite = scale == scale;
  for_vectors<kCount>(params, [&](std::int64_t in, std::int64_t out) {
    const auto x = *reinterpret_cast<const Vector<T, kCount>*>(input + in);
    Vector<std::int8_t, kCount> q;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      q.values[i] = finite ? quantized(widen(x.values[i]), scale) : std::int8_t{0};
    }
    *reinterpret_cast<Vector<std::int8_t, kCount>*>(params.problem.out + out) = q;
  });
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kHeadThreads)
    quantize_heads(const __grid_constant__ Params params) {
  const float scale = scale_for(largest_of_block<T, kCount, kHeadThreads>(params));
  if (threadIdx.x == 0 && threadIdx.y == 0) params.problem.scale[blockIdx.x] = scale;
  write_block<T, kCount>(params, scale);
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) find_largest(const __grid_constant__ Params params) {
  const std::uint32_t largest = largest_of_block<T, kCount, kThreads>(params);
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    atomicMax(reinterpret_cast<unsigned*>(params.problem.scale) + blockIdx.x, largest);
  }
}

__global__ void __launch_bounds__(kThreads) finish_scales(float* scale, std::int64_t heads) {
  const std::int64_t head = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (head < heads) scale[head] = scale_for(__float_as_uint(scale[head]));
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) write_entries(const __grid_constant__ Params params) {
  write_block<T, kCount>(params, params.problem.scale[blockIdx.x]);
}

/// The kernels for an element type and vector length.
struct Kernels {
  const void* quantize_heads;
  const void* find_largest;
  const void* write_entries;
  int vector_elements;
};

template <typename T, int kCount>
Kernels kernels() {
  return {reinterpret_cast<const void*>(&quantize_heads<T, kCount>),
          reinterpret_cast<const void*>(&find_largest<T, kCount>),
          reinterpret_cast<const void*>(&write_entries<T, kCount>), kCount};
}

template <typename T>
Kernels kernels(bool aligned) {
  return aligned ? kernels<T, kVectorBytes / sizeof(T)>() : kernels<T, 1>();
}

bool fits_vectors(const void* data, const Strides& strides, const core::QuantizeProblem& p,
                  std::int64_t elements, std::int64_t element_bytes) noexcept {
  const auto fits = [elements](std::int64_t extent, std::int64_t stride) {
    return extent < 2 || stride % elements == 0;
  };
  return reinterpret_cast<std::uintptr_t>(data) %
                 static_cast<std::uintptr_t>(elements * element_bytes) ==
             0 &&
         p.head_dim % elements == 0 && fits(p.batch, strides.batch) && fits(p.seq, strides.seq) &&
         fits(p.heads, strides.heads);
}

Kernels choose_kernels(const core::QuantizeProblem& p) {
  const std::int64_t bytes = p.dtype == DataType::float32 ? 4 : 2;
  const std::int64_t elements = kVectorBytes / bytes;
  const bool aligned = fits_vectors(p.input, p.input_strides, p, elements, bytes) &&
                       fits_vectors(p.out, p.out_strides, p, elements, 1);
  switch (p.dtype) {
    case DataType::float16:
      return kernels<__half>(aligned);
    case DataType::bfloat16:
      return kernels<__nv_bfloat16>(aligned);
    default:
      return kernels<float>(aligned);
  }
}

/// `threads` threads: as many along a row as it has vectors, up to a warp.
dim3 block_of(const core::QuantizeProblem& p, int vector_elements, unsigned threads) {
  unsigned x = 1;
  while (x < 32 && std::int64_t{x} * vector_elements < p.head_dim) x *= 2;
  return dim3(x, threads / x);
}

Params params_of(const core::QuantizeProblem& p, std::int64_t chunks, const dim3& block) {
  Params params;
  params.problem = p;
  params.rows = p.rows();
  params.row_step = chunks * block.y;
  if (p.seq > 0) {
    params.batch_step = params.row_step / p.seq;
    params.token_step = params.row_step % p.seq;
  }
  return params;
}

void launch(const void* kernel, const dim3& grid, const dim3& block, void** arguments,
            cudaStream_t stream) {
  check(cudaLaunchKernel(kernel, grid, block, arguments, 0, stream), "launching quantize");
}

}  // namespace

void quantize(const Device& device, const core::QuantizeProblem& problem) {
  const DeviceGuard guard(device.ordinal());
  const RelaxedCapture relaxed;  // the first use of a kernel loads it
  auto* stream = static_cast<cudaStream_t>(device.stream());
  const Kernels kernels = choose_kernels(problem);
  const auto heads = static_cast<unsigned>(problem.heads);
  // Rows and head_dim are below 2^62 and 2^31: compared by a quotient.
  if (problem.rows() <= kElementsPerBlock / problem.head_dim) {
    const dim3 block = block_of(problem, kernels.vector_elements, kHeadThreads);
    Params params = params_of(problem, 1, block);
    void* arguments[] = {&params};
    launch(kernels.quantize_heads, dim3(heads), block, arguments, stream);
    return;
  }
  const dim3 block = block_of(problem, kernels.vector_elements, kThreads);
  const std::int64_t row_chunks = (problem.rows() + block.y - 1) / block.y;
  const std::int64_t chunks = std::clamp<std::int64_t>(kBlocks / problem.heads, 1,
                                                       std::min<std::int64_t>(row_chunks, 65535));
  Params params = params_of(problem, chunks, block);
  void* arguments[] = {&params};
  const dim3 grid(heads, static_cast<unsigned>(chunks));
  check(cudaMemsetAsync(problem.scale, 0, sizeof(float) * heads, stream), "launching quantize");
  launch(kernels.find_largest, grid, block, arguments, stream);
  void* scale_arguments[] = {&params.problem.scale, &params.problem.heads};
  launch(reinterpret_cast<const void*>(&finish_scales), dim3((heads - 1) / kThreads + 1),
         dim3(kThreads), scale_arguments, stream);
  launch(kernels.write_entries, grid, block, arguments, stream);
}

void wait_for_stream(const Device& device) {
  const DeviceGuard guard(device.ordinal());
  auto* stream = static_cast<cudaStream_t>(device.stream());
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &status);
  // The legacy stream reports a capture elsewhere that it must not interfere with by an error.
  if (error == cudaErrorStreamCaptureImplicit ||
      (error == cudaSuccess && status != cudaStreamCaptureStatusNone)) {
    throw Error(ErrorCode::unsupported,
                "input and out are in host memory while a CUDA stream is being captured (allowed: "
                "device memory)");
  }
  check(error, "looking at the stream");
  const RelaxedCapture relaxed;
  check(cudaStreamSynchronize(stream), "waiting for the stream");
}

}  // namespace qattn::cuda
