// The CPU kernels on threads of the program's own instead of OpenMP's.
#include <qattn/qattn.hpp>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

// A pool in miniature: starts its threads for every call. A real one would keep them.
struct Pool {
  int threads;
};

void run_on_pool(void* context, std::int64_t tasks, void (*task)(void*, std::int64_t),
                 void* argument) {
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (std::int64_t i = next++; i < tasks; i = next++) task(argument, i);
  };
  const int count = static_cast<Pool*>(context)->threads;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
  const qattn::Shape shape{1, 300, 4, 64};
  const std::size_t n = 300 * 4 * 64;
  std::vector<std::int8_t> tensor(n);
  for (std::size_t i = 0; i < n; ++i) tensor[i] = static_cast<std::int8_t>(i * 37 % 251 - 125);
  const float scale[4] = {0.02F, 0.01F, 0.03F, 0.015F};
  const qattn::Int8Tensor x{tensor.data(), shape, qattn::per_head(scale)};
  std::vector<float> with_openmp(n);
  std::vector<float> with_pool(n);

  const qattn::Device cpu = qattn::Device::cpu();
  qattn::forward(cpu, x, x, x, {with_openmp.data(), shape});
  Pool pool{3};
  qattn::Options options;
  options.executor = {&run_on_pool, &pool};
  qattn::forward(cpu, x, x, x, {with_pool.data(), shape}, options);

  // Threads never change a result: the bits are the same.
  std::printf("the same bits: %s\n", with_openmp == with_pool ? "yes" : "no");
  return with_openmp == with_pool ? 0 : 1;
}
