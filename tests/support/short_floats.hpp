// The 16-bit floating-point types, by search instead of arithmetic.
#pragma once

#include <cstdint>

#include "qattn/tensor.hpp"

namespace qattn::test {

/// The value that the bits of a float16 or bfloat16 stand for.
double short_value(std::uint16_t bits, DataType type);

/// Bits of the value nearest to x, ties to even, past the largest to infinity; 0x7FFF for NaN.
std::uint16_t nearest_short(double x, DataType type);

/// Whether bits are a NaN of the type.
bool is_short_nan(std::uint16_t bits, DataType type);

}  // namespace qattn::test
