#include "cuda/memory.hpp"

#include <cstdint>
#include <mutex>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/device_guard.hpp"
#include "cuda/error.hpp"

namespace qattn::cuda {
namespace {

// Memory that a pool keeps between calls, so that small calls do not pay for mapping memory.
constexpr std::uint64_t kPoolKeepsBytes = 32U << 20U;

cudaMemPool_t make_pool(int ordinal) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = ordinal;
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties), "creating a memory pool");
  std::uint64_t keep = kPoolKeepsBytes;
  // A pool that keeps nothing works too.
  static_cast<void>(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  return pool;
}

// One pool per device, made at first use. Never destroyed: at exit the driver may be gone first.
cudaMemPool_t pool_of(int ordinal) {
  static std::mutex& mutex = *new std::mutex;
  static std::vector<cudaMemPool_t>& pools = *new std::vector<cudaMemPool_t>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto index = static_cast<std::size_t>(ordinal);
  if (pools.size() <= index) pools.resize(index + 1, nullptr);
  if (pools[index] == nullptr) pools[index] = make_pool(ordinal);
  return pools[index];
}

}  // namespace

StreamMemory::StreamMemory(int ordinal, cudaStream_t stream, std::size_t bytes) : stream_(stream) {
  if (bytes == 0) return;
  check(cudaMallocFromPoolAsync(&data_, bytes, pool_of(ordinal), stream),
        "allocating device memory");
}

StreamMemory::~StreamMemory() {
  if (data_ != nullptr) static_cast<void>(cudaFreeAsync(data_, stream_));
}

void* allocate(int ordinal, std::size_t bytes) {
  const DeviceGuard guard(ordinal);
  if (bytes == 0) return nullptr;
  void* pointer = nullptr;
  check(cudaMalloc(&pointer, bytes), "allocating device memory");
  return pointer;
}

void deallocate(int ordinal, void* pointer) noexcept {
  if (pointer == nullptr) return;
  try {
    const DeviceGuard guard(ordinal);
    static_cast<void>(cudaFree(pointer));
  } catch (...) {
    // The driver is shutting down or this is a forked child: the memory is gone already.
  }
}

namespace {

void copy(int ordinal, void* stream, void* to, const void* from, std::size_t bytes,
          cudaMemcpyKind kind, const char* what) {
  const DeviceGuard guard(ordinal);
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  if (bytes != 0) check(cudaMemcpyAsync(to, from, bytes, kind, cuda_stream), what);
  check(cudaStreamSynchronize(cuda_stream), what);
}

}  // namespace

void copy_to_device(int ordinal, void* stream, void* to, const void* from, std::size_t bytes) {
  copy(ordinal, stream, to, from, bytes, cudaMemcpyHostToDevice, "copying to the device");
}

void copy_to_host(int ordinal, void* stream, void* to, const void* from, std::size_t bytes) {
  copy(ordinal, stream, to, from, bytes, cudaMemcpyDeviceToHost, "copying from the device");
}

}  // namespace qattn::cuda
