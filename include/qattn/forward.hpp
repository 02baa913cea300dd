// The call that the library exists for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qattn/device.hpp"
#include "qattn/export.hpp"
#include "qattn/options.hpp"
#include "qattn/tensor.hpp"

namespace qattn {

/// Attention over INT8 tensors:
///
///     S[b,h,i,j] = softmax_scale * q_scale[h] * k_scale[h'] * sum_d q[b,i,h,d] * k[b,j,h',d]
///     P          = softmax over the visible keys j of S                (Mask: which are visible)
///     O[b,i,h,:] = v_scale[h'] * sum_j P[b,h,i,j] * v[b,j,h',:]        h' = h / (heads_q /
///     heads_kv)
///
/// (Vaswani et al. 2017, eq. 1, on dequantised tensors; grouped heads as in Ainslie et al. 2023.)
///
/// q (batch, seq_q, heads_q, head_dim), k and v (batch, seq_k, heads_kv, head_dim), out (batch,
/// seq_q, heads_q, head_dim); heads_q is a multiple of heads_kv, head_dim is 1 to 256. Integer dot
/// products are exact over -128..127. A query without a visible key gives 0 (lse: -infinity). Zero,
/// negative, tiny and huge finite scales follow the formula; a NaN or infinite scale affects its
/// own head alone. batch, seq_q or heads_q of 0 succeed and write nothing.
///
/// On a CUDA device, device memory is used in place and asynchronously on the device's stream; host
/// memory is staged through the GPU and the call then waits for the result (convenient, slower, and
/// an error inside stream capture). On the CPU the call returns when the result is there.
///
/// Re-entrant and thread-safe. out and lse must not overlap the inputs or each other. Where the
/// kernel uses AMX, the tile registers of the threads that ran it, the caller's among them, are
/// released afterwards.
///
/// Throws Error: invalid_argument, unsupported, unknown_kernel, kernel_unusable,
/// device_unavailable, out_of_memory, cuda. When it throws for its arguments, nothing was written.
QATTN_API void forward(const Device& device, const Int8Tensor& q, const Int8Tensor& k,
                       const Int8Tensor& v, const OutputTensor& out, const Options& options = {});

/// The plain case: contiguous (batch, seq, heads, head_dim) tensors, scales[heads] per head.
/// Otherwise as above.
QATTN_API void forward(const Device& device, const std::int8_t* q, const std::int8_t* k,
                       const std::int8_t* v, const float* q_scale, const float* k_scale,
                       const float* v_scale, float* out, std::int64_t batch, std::int64_t seq,
                       std::int64_t heads, std::int64_t head_dim, bool causal = true);

/// Bytes of Options::workspace with which forward() allocates no device memory for these arguments;
/// 0 where it needs none. Pointers are not followed and may be null. Throws as forward() does.
QATTN_API std::size_t workspace_bytes(const Device& device, const Int8Tensor& q,
                                      const Int8Tensor& k, const Int8Tensor& v,
                                      const OutputTensor& out, const Options& options = {});

}  // namespace qattn
