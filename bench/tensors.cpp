#include <cmath>
#include <cstring>
#include <limits>

#include "rows.hpp"

namespace qattn::bench {
namespace {

// Standard deviation of int8 values uniform over -128..127.
constexpr float kUniformDeviation = 73.9F;

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014: the finaliser.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

Buffer<std::int8_t> random_buffer(const Device& device, std::int64_t count, std::uint64_t seed) {
  Buffer<std::int8_t> buffer(device, static_cast<std::size_t>(count));
  if (device.kind() == Device::Kind::cpu) {
    fill_random(buffer.data(), count, seed);
  } else {
    std::vector<std::int8_t> host(static_cast<std::size_t>(count));
    fill_random(host.data(), count, seed);
    buffer.copy_from(host.data());
  }
  return buffer;
}

/// Scales that make values of unit variance, a little different for every head. Scores then have a
/// standard deviation near 1 at the default softmax_scale.
Buffer<float> unit_scales(const Device& device, std::int64_t heads) {
  std::vector<float> scales(static_cast<std::size_t>(heads));
  for (std::size_t h = 0; h < scales.size(); ++h) {
    const float position = (static_cast<float>(h) + 0.5F) / static_cast<float>(heads);
    scales[h] = (0.9F + 0.2F * position) / kUniformDeviation;
  }
  return Buffer<float>(device, scales.data(), scales.size());
}

/// NaN everywhere: the memory is mapped before a row is timed, and a result never looks right by
/// chance.
Buffer<float> nan_buffer(const Device& device, std::int64_t count) {
  const std::vector<float> host(static_cast<std::size_t>(count),
                                std::numeric_limits<float>::quiet_NaN());
  return Buffer<float>(device, host.data(), host.size());
}

}  // namespace

void fill_random(std::int8_t* data, std::int64_t count, std::uint64_t seed) {
  constexpr std::int64_t kWord = sizeof(std::uint64_t);
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15U;
  const std::uint64_t start = mix(seed + 1);
  const std::int64_t words = count / kWord;
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < words; ++i) {
    const std::uint64_t word = mix(start + kStep * static_cast<std::uint64_t>(i));
    std::memcpy(data + i * kWord, &word, kWord);
  }
  const std::uint64_t last = mix(start + kStep * static_cast<std::uint64_t>(words));
  std::memcpy(data + words * kWord, &last, static_cast<std::size_t>(count % kWord));
}

Tensors::Tensors(const Device& device, const Extents& extents, std::int64_t copies)
    : device_(device), extents_(extents) {
  const std::int64_t q_size = extents.batch * extents.seq_q * extents.heads_q * extents.head_dim;
  const std::int64_t kv_size = extents.batch * extents.seq_k * extents.heads_kv * extents.head_dim;
  q_ = random_buffer(device, q_size, 0);
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    const auto seed = static_cast<std::uint64_t>(2 * copy + 1);
    k_.push_back(random_buffer(device, kv_size, seed));
    v_.push_back(random_buffer(device, kv_size, seed + 1));
  }
  q_scale_ = unit_scales(device, extents.heads_q);
  k_scale_ = unit_scales(device, extents.heads_kv);
  v_scale_ = unit_scales(device, extents.heads_kv);
  out_ = nan_buffer(device, q_size);
}

Int8Tensor Tensors::q() const {
  return {q_.data(),
          {extents_.batch, extents_.seq_q, extents_.heads_q, extents_.head_dim},
          per_head(q_scale_.data())};
}

Int8Tensor Tensors::k(std::int64_t copy) const {
  return {k_[static_cast<std::size_t>(copy)].data(),
          {extents_.batch, extents_.seq_k, extents_.heads_kv, extents_.head_dim},
          per_head(k_scale_.data())};
}

Int8Tensor Tensors::v(std::int64_t copy) const {
  return {v_[static_cast<std::size_t>(copy)].data(),
          {extents_.batch, extents_.seq_k, extents_.heads_kv, extents_.head_dim},
          per_head(v_scale_.data())};
}

OutputTensor Tensors::out() {
  return {out_.data(), {extents_.batch, extents_.seq_q, extents_.heads_q, extents_.head_dim}};
}

std::vector<float> Tensors::out_on_host() const {
  std::vector<float> host(out_.size());
  out_.copy_to(host.data());
  return host;
}

Tensors& TensorCache::get(const Device& device, const Extents& extents, std::int64_t copies) {
  const bool fits = tensors_ && tensors_->device() == device && tensors_->extents() == extents &&
                    tensors_->copies() == copies;
  if (!fits) {
    tensors_.reset();  // the memory of the old ones first
    tensors_.emplace(device, extents, copies);
  }
  return *tensors_;
}

}  // namespace qattn::bench
