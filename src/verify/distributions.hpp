// Random int8 data that is the same on every machine: the standard library's distributions are not.
#pragma once

#include <cstdint>
#include <vector>

namespace qattn::verify {

/// The SplitMix64 generator (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept;
  /// Uniform over [0, 1).
  double uniform() noexcept;

 private:
  std::uint64_t state_;
};

/// Standard deviation of fill_normal(): a normal distribution quantised as its largest of some
/// 60,000 values would have it, 127 / 4.2.
inline constexpr double kNormalSd = 30.0;

/// Independent values, uniform over -128..127.
void fill_uniform(std::vector<std::int8_t>& values, Random& random);
/// Independent values, normal with standard deviation kNormalSd, rounded to integers, within
/// -127..127.
void fill_normal(std::vector<std::int8_t>& values, Random& random);

}  // namespace qattn::verify
