// The contract between the benchmark (compiled for the baseline) and its objects with
// instruction-set flags: plain data, one function each, no inline code that could leak.
#pragma once

#include <cstdint>

namespace qattn::bench {

/// Bytes of random data that a ceiling is given, 64-byte aligned.
inline constexpr int kCeilingDataBytes = 4096;
/// Integers that a ceiling writes, 64-byte aligned: what makes its result count as used.
inline constexpr int kCeilingSinkInts = 256;

/// Runs `rounds` rounds of an instruction's peak-rate loop on the calling thread, operands in
/// registers. Returns the operations done (a multiply and its add are two).
using CeilingFunction = double (*)(std::int64_t rounds, const std::int8_t* data,
                                   std::int32_t* sink);

/// Reads `bytes` bytes, a multiple of kReadMultiple, from 64-byte aligned `data` on the calling
/// thread. Returns a sum over them.
using ReadFunction = std::uint64_t (*)(const std::int8_t* data, std::int64_t bytes);
inline constexpr std::int64_t kReadMultiple = 4096;

/// Float32 attention of one (batch, head) pair on the calling thread, dequantising first.
struct PeerHead {
  const std::int8_t* q = nullptr;  // first token of the head
  const std::int8_t* k = nullptr;
  const std::int8_t* v = nullptr;
  float* out = nullptr;
  std::int64_t token_stride = 0;  // of q, k, v and out, in elements
  std::int64_t seq = 0;
  std::int64_t head_dim = 0;
  float score_factor = 0;  // softmax_scale * q_scale * k_scale
  float v_scale = 0;
  bool causal = true;
  bool softmax = true;  // false: the two products alone, to see what the yardstick's products reach
  float* scratch = nullptr;  // peer_scratch_floats() floats, 64-byte aligned
};
using PeerFunction = void (*)(const PeerHead& head);

/// Queries that the peer handles at once. More reuse K and V better while the scores stay in cache;
/// fewer waste less on keys that a causal mask hides. Measured, on AVX-512 and on AVX2.
constexpr std::int64_t peer_rows(std::int64_t seq) noexcept { return seq <= 512 ? 48 : 128; }
inline constexpr std::int64_t kPeerRowsMax = 128;

/// Floats rounded up to whole vectors of 64 bytes.
constexpr std::int64_t whole_vectors(std::int64_t floats) noexcept {
  return (floats + 15) / 16 * 16;
}

/// Floats of PeerHead::scratch: K, V, and a block of queries, scores and outputs.
constexpr std::int64_t peer_scratch_floats(std::int64_t seq, std::int64_t head_dim) noexcept {
  return 2 * whole_vectors(seq * head_dim) +
         kPeerRowsMax * (2 * whole_vectors(head_dim) + whole_vectors(seq));
}

}  // namespace qattn::bench
