#include "cuda/tensor_map.hpp"

#include "cuda/driver_api.hpp"

namespace qattn::cuda {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) &&
              alignof(TensorMap) == alignof(CUtensorMap));

CUtensorMapSwizzle swizzle_of(int span_bytes) noexcept {
  return span_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
         : span_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                            : CU_TENSOR_MAP_SWIZZLE_32B;
}

bool describe(const DriverApi& driver, TensorMap& map, const AttentionInput& input,
              const core::Problem& problem, const AttentionKernel& kernel) noexcept {
  const auto extent = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t extents[4] = {extent(problem.head_dim), extent(problem.heads_kv),
                                 extent(problem.seq_k), extent(problem.batch)};
  const cuuint64_t strides[3] = {extent(input.head_stride), extent(input.seq_stride),
                                 extent(input.batch_stride)};
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(kernel.box_bytes), 1,
                             static_cast<cuuint32_t>(kernel.box_keys), 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  // Not const: cuda.h takes the address of tensors that copies may write to.
  void* data = const_cast<std::int8_t*>(input.data);
  return driver.tensor_map_encode_tiled(
             reinterpret_cast<CUtensorMap*>(&map), CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, data, extents,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(kernel.box_bytes),
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

void describe_tensors(AttentionParams& params, const core::Problem& problem,
                      const AttentionKernel& kernel) {
  params.bulk = false;
  if (kernel.box_bytes == 0 || problem.seq_k == 0 || params.k.alignment != Alignment::bytes_16 ||
      params.v.alignment != Alignment::bytes_16) {
    return;
  }
  const DriverApi* driver = driver_if_loaded();
  // A map that the driver refuses (a stride beyond 2^40 bytes) is no error: ordinary copies serve.
  params.bulk = driver != nullptr && describe(*driver, params.k_map, params.k, problem, kernel) &&
                describe(*driver, params.v_map, params.v, problem, kernel);
}

}  // namespace qattn::cuda
