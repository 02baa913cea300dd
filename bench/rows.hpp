// What the rows of the benchmark share: names, thread counts, tensors, registration.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isa.hpp"
#include "qattn/qattn.hpp"

namespace qattn::bench {

/// Extents of a problem.
struct Extents {
  std::int64_t batch = 1;
  std::int64_t seq_q = 1;
  std::int64_t seq_k = 1;
  std::int64_t heads_q = 1;
  std::int64_t heads_kv = 1;
  std::int64_t head_dim = 1;

  friend bool operator==(const Extents&, const Extents&) = default;
  /// Multiplications and additions of both products; half of them under a causal mask, as is the
  /// custom for square problems (a few more are visible).
  double operations(bool causal) const;
  /// Bytes of K and V.
  double key_value_bytes() const;
};

/// A square problem with as many key/value heads as query heads.
Extents square(std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t head_dim);
/// {{"B", 1}, {"xS", 2048}} -> "B1xS2048".
std::string extents_name(std::initializer_list<std::pair<const char*, std::int64_t>> parts);
/// "B1xS2048xH16xD128", of a square problem.
std::string square_name(const Extents& extents);

/// Random tensors of a problem in the memory of a device. K and V exist `copies` times, so that a
/// row can read them from memory rather than from a cache.
class Tensors {
 public:
  Tensors(const Device& device, const Extents& extents, std::int64_t copies);

  const Extents& extents() const noexcept { return extents_; }
  const Device& device() const noexcept { return device_; }
  std::int64_t copies() const noexcept { return static_cast<std::int64_t>(k_.size()); }
  Int8Tensor q() const;
  Int8Tensor k(std::int64_t copy = 0) const;
  Int8Tensor v(std::int64_t copy = 0) const;
  OutputTensor out();
  /// The output in host memory.
  std::vector<float> out_on_host() const;

 private:
  Device device_;
  Extents extents_;
  Buffer<std::int8_t> q_;
  std::vector<Buffer<std::int8_t>> k_, v_;
  Buffer<float> q_scale_, k_scale_, v_scale_, out_;
};

/// Keeps the tensors of the row that ran last: rows of one problem come one after another, and each
/// of them is entered several times.
class TensorCache {
 public:
  Tensors& get(const Device& device, const Extents& extents, std::int64_t copies = 1);
  /// Frees the memory; the CUDA runtime must still be there.
  void clear() { tensors_.reset(); }

 private:
  std::optional<Tensors> tensors_;
};

/// `count` random bytes over the whole range of int8, in parallel; the same for the same seed.
void fill_random(std::int8_t* data, std::int64_t count, std::uint64_t seed);

/// All threads that OpenMP gives, or one.
enum class Threads { all, one };
inline constexpr Threads kBothThreadCounts[] = {Threads::all, Threads::one};
int thread_count(Threads threads);
/// "forward" or "forward_1".
std::string first_word(const std::string& word, Threads threads);

/// What a row's time is read from. (A row cannot have both: Google Benchmark 1.8 refuses it.)
enum class Clock { real, cuda_events };

/// The clock of rows that run on `device`.
inline Clock clock_of(const Device& device) {
  return device.kind() == Device::Kind::cuda ? Clock::cuda_events : Clock::real;
}

/// Registers a row; what `run` throws becomes the row's error.
benchmark::internal::Benchmark* add_row(const std::string& name,
                                        std::function<void(benchmark::State&)> run,
                                        Clock clock = Clock::real);
/// Sets the counter TOPS (or GBps) from the work of one iteration, and the counter threads.
void count_operations(benchmark::State& state, double operations_per_iteration, int threads);
void count_bytes(benchmark::State& state, double bytes_per_iteration, int threads);

/// Names of the kernels that can run on `device`, without the reference.
std::vector<std::string> usable_kernels(const Device& device);
/// "high" or "fast"; "causal" or "full".
std::string to_string(Precision precision);
std::string to_string(const Mask& mask);

/// Runs the library on the tensors and says how `peer_out` differs from it; empty if it does not.
std::string difference_from_library(Tensors& tensors, const Mask& mask,
                                    const std::vector<float>& peer_out);

void register_ceiling_rows();
void register_memory_rows();
void register_forward_rows(TensorCache& cache);
void register_decode_rows(TensorCache& cache);
/// The float32 baseline on Eigen for one problem.
void register_eigen_rows(TensorCache& cache, const Extents& extents, const Mask& mask,
                         Threads threads);

}  // namespace qattn::bench
