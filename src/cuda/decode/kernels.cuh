// The decode kernels of a family. Included by the one source file of a family, whose name their
// linkage takes on: every family has kernels of its own, compiled for its architectures.
#pragma once

#include <array>

#include "cuda/decode.hpp"
#include "cuda/decode/merge.cuh"
#include "cuda/decode/split.cuh"

namespace qattn::cuda {
namespace {

template <int kHeadDim, int kRowTiles>
__global__ void __launch_bounds__(DecodePolicy<kHeadDim, kRowTiles>::kThreads,
                                  DecodePolicy<kHeadDim, kRowTiles>::kBlocksPerMultiprocessor)
    decode_split(const __grid_constant__ DecodeParams params) {
  extern __shared__ __align__(128) unsigned char decode_memory[];
  decode::run_split<kHeadDim, kRowTiles>(params, decode_memory);
}

template <int kHeadDim>
__global__ void __launch_bounds__(decode::kMergeThreads)
    decode_merge(const __grid_constant__ DecodeParams params) {
  decode::run_merge<kHeadDim>(params);
}

template <int kHeadDim, int kRowTiles>
DecodeKernel split_kernel() {
  using Policy = DecodePolicy<kHeadDim, kRowTiles>;
  return {reinterpret_cast<const void*>(&decode_split<kHeadDim, kRowTiles>), Policy::kThreads,
          Policy::kRows, Policy::kSharedBytes};
}

template <int kHeadDim>
DecodeKernels decode_kernels() {
  return {
      {split_kernel<kHeadDim, kDecodeRows[0] / 8>(), split_kernel<kHeadDim, kDecodeRows[1] / 8>(),
       split_kernel<kHeadDim, kDecodeRows[2] / 8>()},
      {reinterpret_cast<const void*>(&decode_merge<kHeadDim>), decode::kMergeThreads,
       decode::kMergeRows, 0}};
}

}  // namespace
}  // namespace qattn::cuda
