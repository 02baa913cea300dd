#include "support/short_floats.hpp"

#include <cmath>
#include <limits>

namespace qattn::test {
namespace {

struct Format {
  int fraction_bits;
  int bias;
  std::uint16_t infinity;
};

Format format_of(DataType type) {
  return type == DataType::float16 ? Format{10, 15, 0x7C00} : Format{7, 127, 0x7F80};
}

// As if the exponents went on: infinity stands where the next value would be.
double unbounded(std::uint16_t magnitude, const Format& format) {
  const int exponent = magnitude >> format.fraction_bits;
  const int fraction = magnitude & ((1 << format.fraction_bits) - 1);
  if (exponent == 0) return std::ldexp(fraction, 1 - format.bias - format.fraction_bits);
  return std::ldexp(fraction + (1 << format.fraction_bits),
                    exponent - format.bias - format.fraction_bits);
}

}  // namespace

bool is_short_nan(std::uint16_t bits, DataType type) {
  return (bits & 0x7FFF) > format_of(type).infinity;
}

double short_value(std::uint16_t bits, DataType type) {
  const Format format = format_of(type);
  const std::uint16_t magnitude = bits & 0x7FFF;
  if (magnitude > format.infinity) return std::nan("");
  const double value = magnitude == format.infinity ? std::numeric_limits<double>::infinity()
                                                    : unbounded(magnitude, format);
  return (bits & 0x8000) != 0 ? -value : value;
}

std::uint16_t nearest_short(double x, DataType type) {
  if (std::isnan(x)) return 0x7FFF;
  const Format format = format_of(type);
  const double magnitude = std::fabs(x);
  // The values grow with their bits: the last one that is not above x, and its neighbour.
  std::uint16_t below = 0;
  std::uint16_t above = format.infinity;
  while (above - below > 1) {
    const auto middle = static_cast<std::uint16_t>((above + below) / 2);
    (unbounded(middle, format) <= magnitude ? below : above) = middle;
  }
  const double to_below = magnitude - unbounded(below, format);
  const double to_above = unbounded(above, format) - magnitude;
  const bool up = to_above < to_below || (to_above == to_below && above % 2 == 0);
  return static_cast<std::uint16_t>((up ? above : below) | (std::signbit(x) ? 0x8000 : 0));
}

}  // namespace qattn::test
