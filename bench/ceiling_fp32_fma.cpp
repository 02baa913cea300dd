// Peak rate of float32 multiply-add, at the widest vectors that the compile flags allow.
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "isa.hpp"

namespace {

// step(): one multiplication and one addition on the way from a sum to the next.
#if defined(__AVX512F__)
using Vector = __m512;
inline Vector step(Vector sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
#elif defined(__FMA__)
using Vector = __m256;
inline Vector step(Vector sum, Vector a, Vector b) { return _mm256_fmadd_ps(a, b, sum); }
#elif defined(__aarch64__)
using Vector = float32x4_t;
inline Vector step(Vector sum, Vector a, Vector b) { return vfmaq_f32(sum, a, b); }
#else
// No fused instruction. The sum is a factor here, or the compiler would share a product between
// sums.
typedef float Vector __attribute__((vector_size(16)));
inline Vector step(Vector sum, Vector a, Vector b) { return sum * a + b; }
#endif

constexpr int kLanes = sizeof(Vector) / sizeof(float);

// Makes `vector` a value in a register that the compiler knows nothing about.
inline void forget(Vector& vector) {
#if defined(__x86_64__)
  asm volatile("" : "+v"(vector));
#else
  asm volatile("" : "+w"(vector));
#endif
}

// Odd multiples of 1/256: below 1, so that no sum overflows, and never 0, so that none becomes
// subnormal.
inline Vector load(const std::int8_t* data) {
  Vector result;
  for (int i = 0; i < kLanes; ++i) result[i] = static_cast<float>(2 * data[i] + 1) / 256.0F;
  forget(result);
  return result;
}

}  // namespace

extern "C" double QATTN_BENCH_FUNCTION(std::int64_t rounds, const std::int8_t* data,
                                       std::int32_t* sink) {
  // Latency 4 at two a cycle wants 8 sums; 10 sums and 3 operands leave GCC some of 16 registers.
  constexpr int kSums = 10;
  constexpr int kRight = 2;
  Vector left = load(data);
  Vector right[kRight];
  Vector sum[kSums];
#pragma GCC unroll 2
  for (int j = 0; j < kRight; ++j) right[j] = load(data + 64 * (1 + j));
#pragma GCC unroll 10
  for (int i = 0; i < kSums; ++i) sum[i] = load(data + 64 * (4 + i));
  for (std::int64_t round = 0; round < rounds; ++round) {
    forget(left);  // a new operand, as far as the compiler knows
#pragma GCC unroll 10
    for (int i = 0; i < kSums; ++i) sum[i] = step(sum[i], left, right[i % kRight]);
  }
  static_assert(kSums * kLanes <= qattn::bench::kCeilingSinkInts);
#pragma GCC unroll 10
  for (int i = 0; i < kSums; ++i) {
    __builtin_memcpy(sink + i * kLanes, &sum[i], sizeof(Vector));
  }
  return 2.0 * kLanes * kSums * static_cast<double>(rounds);
}
