#include "verify/distributions.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace qattn::verify {
namespace {

constexpr int kQuantiles = 1 << 16;

// quantile[u] is the value that a uniform 16-bit u stands for: value x takes the share of the table
// that the normal distribution gives to [x - 0.5, x + 0.5].
std::array<std::int8_t, kQuantiles> normal_quantiles() {
  std::array<std::int8_t, kQuantiles> quantile{};
  int begin = 0;
  for (int x = -127; x <= 127; ++x) {
    const double below = 0.5 * std::erfc(-(x + 0.5) / (kNormalSd * std::sqrt(2.0)));
    const int end = x == 127 ? kQuantiles : static_cast<int>(std::lround(kQuantiles * below));
    std::fill(quantile.begin() + begin, quantile.begin() + end, static_cast<std::int8_t>(x));
    begin = end;
  }
  return quantile;
}

}  // namespace

std::uint64_t Random::next() noexcept {
  state_ += 0x9e3779b97f4a7c15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

double Random::uniform() noexcept { return static_cast<double>(next() >> 11U) * 0x1p-53; }

void fill_uniform(std::vector<std::int8_t>& values, Random& random) {
  for (std::size_t i = 0; i < values.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t bits = random.next();
    std::memcpy(values.data() + i, &bits, std::min(sizeof bits, values.size() - i));
  }
}

void fill_normal(std::vector<std::int8_t>& values, Random& random) {
  static const auto quantile = normal_quantiles();
  for (std::size_t i = 0; i < values.size(); i += 4) {
    std::uint64_t bits = random.next();
    const std::size_t end = std::min(i + 4, values.size());
    for (std::size_t j = i; j < end; ++j, bits >>= 16U) values[j] = quantile[bits & 0xffffU];
  }
}

}  // namespace qattn::verify
