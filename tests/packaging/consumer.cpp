// A user's program: it needs the headers, the library and nothing else. Exit code 0: all is well.
#include <qattn/qattn.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kBatch = 2, kSeq = 9, kHeads = 3, kHeadDim = 40;

// Every value is 50 at a scale of 0.5: so is every output, whatever the scores.
bool attention_is_right() {
  const qattn::Device device = qattn::Device::cpu();
  const std::size_t count = kBatch * kSeq * kHeads * kHeadDim;
  std::vector<std::int8_t> q(count), k(count), v(count, 50);
  for (std::size_t i = 0; i < count; ++i) {
    q[i] = static_cast<std::int8_t>(i * 7 % 256 - 128);
    k[i] = static_cast<std::int8_t>(i * 11 % 256 - 128);
  }
  const std::vector<float> scale(kHeads, 0.01F), v_scale(kHeads, 0.5F);
  std::vector<float> out(count, -1.0F);
  qattn::forward(device, q.data(), k.data(), v.data(), scale.data(), scale.data(), v_scale.data(),
                 out.data(), kBatch, kSeq, kHeads, kHeadDim);
  for (const float x : out) {
    if (x < 24.99F || x > 25.01F) {
      std::printf("out holds %g instead of 25\n", static_cast<double>(x));
      return false;
    }
  }
  return true;
}

// By its type, though the program is compiled with hidden visibility.
bool errors_are_caught() {
  try {
    qattn::forward(qattn::Device::cpu(), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                   nullptr, 1, 1, 1, 64);
  } catch (const qattn::Error& error) {
    return error.code() == qattn::ErrorCode::invalid_argument && *error.what() != '\0';
  } catch (...) {
    std::printf("the error is not a qattn::Error here\n");
  }
  return false;
}

bool version_agrees() {
  const std::string expected = std::to_string(QATTN_VERSION_MAJOR) + "." +
                               std::to_string(QATTN_VERSION_MINOR) + "." +
                               std::to_string(QATTN_VERSION_PATCH);
  return expected == qattn::version();
}

}  // namespace

int main() {
  if (!version_agrees()) return 1;
  if (!attention_is_right()) return 2;
  if (!errors_are_caught()) return 3;
  std::printf("qattn %s serves %s\n", qattn::version(), qattn::Device::best().name().c_str());
  return 0;
}
