// The verbs of the tile loop on xsimd batches. A tier adds fma (xsimd 8.1 computes it with two
// roundings on its AVX-512 types), the split of exponents (numerics.hpp), merge_bits, and Sum: the
// type of a sum that is carried through a loop. It has 32-bit elements; with the 64-bit elements
// that the intrinsics' types have, GCC 12 and 13 carry a second view of every sum along, at the
// price of two register moves per step.
#pragma once

#include <cstdint>
#include <xsimd/xsimd.hpp>

namespace qattn::cpu {
namespace {

template <class Arch>
struct XsimdLanes {
  using Floats = xsimd::batch<float, Arch>;
  using Ints = xsimd::batch<std::int32_t, Arch>;
  using Mask = xsimd::batch_bool<float, Arch>;
  static constexpr int kLanes = static_cast<int>(Floats::size);

  static Floats load(const float* from) { return Floats::load_aligned(from); }
  static Ints load(const std::int32_t* from) { return Ints::load_aligned(from); }
  static void store(float* to, Floats x) { x.store_aligned(to); }
  static void store_unaligned(float* to, Floats x) { x.store_unaligned(to); }
  static void store(std::int32_t* to, Ints x) { x.store_aligned(to); }
  static Floats splat(float x) { return Floats(x); }
  static Ints splat(std::int32_t x) { return Ints(x); }

  static Floats max(Floats a, Floats b) { return xsimd::max(a, b); }
  static Floats select(Mask mask, Floats a, Floats b) { return xsimd::select(mask, a, b); }
  static Ints select(Mask mask, Ints a, Ints b) {
    return as_ints(select(mask, as_floats(a), as_floats(b)));
  }
  static bool any(Mask mask) { return xsimd::any(mask); }

  static Ints as_ints(Floats x) { return xsimd::bitwise_cast<Ints>(x); }
  static Floats as_floats(Ints x) { return xsimd::bitwise_cast<Floats>(x); }
  static Floats to_floats(Ints x) { return xsimd::to_float(x); }
  template <int kBits>
  static Ints shift_left(Ints x) {
    return x << kBits;
  }
};

}  // namespace
}  // namespace qattn::cpu
