// What every attention kernel of the CUDA family takes, and what its launcher must know of it.
#pragma once

#include <cstdint>

#include "qattn/tensor.hpp"

namespace qattn::cuda {

/// Keys whose probabilities share one maximum; also the keys of a tile in shared memory.
inline constexpr int kGroupKeys = 128;

/// Rows of a block of the tiny kernel.
inline constexpr int kTinyRows = 16;

/// Alignment that the base and all strides of an input share, in bytes: what its loads may assume.
enum class Alignment : std::int32_t { bytes_1 = 1, bytes_4 = 4, bytes_16 = 16 };

/// An input tensor on the device. Strides in bytes.
struct AttentionInput {
  const std::int8_t* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t seq_stride = 0;
  std::int64_t head_stride = 0;
  const float* scale = nullptr;
  Alignment alignment = Alignment::bytes_1;
};

/// A CUtensorMap: how the tensor copy engine reads an input.
struct alignas(128) TensorMap {
  std::uint64_t opaque[16];
};

/// Elements of the output: where they lie and, known at run time only, what they are.
struct OutputPointer {
  void* data = nullptr;
  DataType type = DataType::float32;  // float32, float16 or bfloat16
};

/// Parameters of a launch. Row r of a (batch, kv head) pair is query r / group_size of query head
/// head_kv * group_size + r % group_size: heads that share keys share a block.
struct AttentionParams {
  AttentionInput q;
  AttentionInput k;
  AttentionInput v;
  OutputPointer out;
  std::int64_t out_batch_stride = 0;  // elements
  std::int64_t out_seq_stride = 0;
  std::int64_t out_head_stride = 0;
  float* lse = nullptr;  // (batch, heads_q, seq_q) or null
  double softmax_scale = 0;
  std::int64_t rows = 0;  // seq_q * group_size
  std::int32_t seq_q = 0;
  std::int32_t seq_k = 0;
  std::int32_t heads_kv = 0;
  std::int32_t group_size = 0;
  std::int32_t head_dim = 0;        // at most the kernel's; the rest is zero
  std::uint32_t first_batch = 0;    // of this launch
  std::uint32_t pairs = 0;          // (batch, kv head) pairs of this launch
  std::uint32_t section_pairs = 0;  // pairs whose blocks are scheduled together
  std::uint32_t row_blocks = 0;     // blocks per pair; the launch has pairs * row_blocks
  bool causal = false;
  bool out_aligned = false;  // every row of out is aligned to 4 elements
  bool bulk = false;         // k_map and v_map are set
  TensorMap k_map;           // (head_dim, heads, seq, batch), innermost first
  TensorMap v_map;
};

/// The kernel for tiny problems (tiny/attention.cuh), the same at every precision: its blocks take
/// kTinyRows rows and a group of keys. Its grid is (kv heads, row blocks, batch).
struct TinyKernel {
  const void* function = nullptr;
  int threads = 0;
  int shared_bytes = 0;
};

/// A compiled kernel: a __global__ function of one AttentionParams.
struct AttentionKernel {
  const void* function = nullptr;  // for cudaLaunchKernelExC
  int threads = 0;
  int rows = 0;  // of a block
  int shared_bytes = 0;
  // Box of bulk copies of K and V: keys and bytes of a row; 0: the kernel makes none.
  int box_keys = 0;
  int box_bytes = 0;
  bool persistent = false;  // takes the blocks of rows in turns: a grid larger than what runs at
                            // once is of no use
  TinyKernel tiny;
};

}  // namespace qattn::cuda
