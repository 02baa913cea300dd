// Attention on the best device of this machine, from host vectors and back: the ten-line case.
#include <qattn/qattn.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  const std::int64_t batch = 2;
  const std::int64_t seq = 72;
  const std::int64_t heads = 4;
  const std::int64_t head_dim = 32;
  const std::size_t n = batch * seq * heads * head_dim;

  // Quantised tensors (batch, seq, heads, head_dim): value = scale[head] * integer.
  std::vector<std::int8_t> tensor(n);
  for (std::size_t i = 0; i < n; ++i) tensor[i] = static_cast<std::int8_t>(i * 31 % 255 - 127);
  const std::vector<float> scales = {0.010F, 0.012F, 0.009F, 0.011F};

  const qattn::Device device = qattn::Device::best();  // a usable GPU, else this CPU
  const qattn::Buffer<std::int8_t> qkv(device, tensor.data(), n);
  const qattn::Buffer<float> scale(device, scales.data(), scales.size());
  qattn::Buffer<float> out(device, n);
  try {
    qattn::forward(device, qkv.data(), qkv.data(), qkv.data(), scale.data(), scale.data(),
                   scale.data(), out.data(), batch, seq, heads, head_dim, /*causal=*/true);
  } catch (const qattn::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::vector<float> result(n);
  out.copy_to(result.data());
  // The first query sees the first key alone, so that its output is that key's value.
  std::printf("%s: out[0] = %g, v[0] = %g\n", device.name().c_str(), static_cast<double>(result[0]),
              static_cast<double>(scales[0] * tensor[0]));
  return std::abs(result[0] - scales[0] * tensor[0]) < 1e-6F ? 0 : 1;
}
