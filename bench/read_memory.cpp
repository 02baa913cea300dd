// Reads memory and does next to nothing else. The width of the loads matters: the more bytes the
// core's window of instructions spans, the more cache lines are under way.
#include <cstdint>

#include "isa.hpp"

extern "C" std::uint64_t QATTN_BENCH_FUNCTION(const std::int8_t* data, std::int64_t bytes) {
#if defined(__AVX512F__)
  constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
  constexpr int kVectorBytes = 32;
#else
  constexpr int kVectorBytes = 16;
#endif
  typedef std::uint64_t Vector __attribute__((vector_size(kVectorBytes), may_alias));
  constexpr int kVectors = 8;  // independent sums
  constexpr int kStreams = 4;  // pages that the prefetchers follow at once: 5 % more than with one
  constexpr std::int64_t kStep = kVectors * kVectorBytes;
  static_assert(qattn::bench::kReadMultiple % (kStreams * kStep) == 0);
  const std::int64_t part = bytes / kStreams;
  Vector sum[kVectors] = {};
  for (std::int64_t offset = 0; offset < part; offset += kStep) {
#pragma GCC unroll 4
    for (int stream = 0; stream < kStreams; ++stream) {
      const auto* vectors = reinterpret_cast<const Vector*>(data + stream * part + offset);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) sum[i] += vectors[i];
    }
  }
  Vector total = sum[0];
#pragma GCC unroll 8
  for (int i = 1; i < kVectors; ++i) total += sum[i];
  std::uint64_t result = 0;
  for (unsigned i = 0; i < kVectorBytes / sizeof(result); ++i) result += total[i];
  return result;
}
