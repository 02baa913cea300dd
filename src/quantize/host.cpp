#include "quantize/host.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "core/float_environment.hpp"
#include "core/host_memory.hpp"
#include "cpu/threads.hpp"
#include "qattn/error.hpp"
#include "quantize/element.hpp"

namespace qattn::quantization {
namespace {

using core::QuantizeProblem;

constexpr float kLargest = 127.0F;

// Elements of a task: enough to be worth handing out.
constexpr std::int64_t kElementsPerTask = 32768;
// Heads whose largest magnitudes a task finds in one sweep over its rows.
constexpr std::int64_t kHeadsAtOnce = 64;
// Elements for which waking one more thread (a few microseconds) pays.
constexpr std::int64_t kElementsPerThread = 65536;

template <typename Bits>
Bits largest_magnitude(const Bits* x, std::int64_t count, Bits mask) noexcept {
  Bits largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<Bits>(x[i] & mask);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// quantize.hpp states the rule; src/cuda/quantize.cu computes the same bits.
float scale_for(float largest) noexcept {
  if (largest == 0) return 1.0F;
  const float scale = largest / kLargest;
  if (largest / scale < kLargest + 0.5F) return scale;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) + 1U);
}

template <typename Element>
void quantize_row(const typename Element::Bits* x, std::int64_t count, float scale,
                  std::int8_t* out) noexcept {
  // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves that integer in the
  // low bits: the quotient is below 127.5 by the choice of the scale. Without SSE4.1 there is no
  // other rounding instruction.
  constexpr float kRound = 12582912.0F;
  for (std::int64_t i = 0; i < count; ++i) {
    const float rounded = Element::widen(x[i]) / scale + kRound;
    out[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(rounded));
  }
}

// The two passes over a tensor, cut into tasks of whole rows.
template <typename Element>
class Passes {
 public:
  using Bits = typename Element::Bits;

  explicit Passes(const QuantizeProblem& problem)
      : problem_(problem), largest_(static_cast<std::size_t>(problem.heads)) {
    const std::int64_t row_elements = problem.heads * problem.head_dim;
    rows_per_task_ = std::max<std::int64_t>(1, kElementsPerTask / row_elements);
  }

  std::int64_t tasks() const noexcept {
    return (problem_.rows() + rows_per_task_ - 1) / rows_per_task_;
  }
  Bits largest(std::int64_t head) const noexcept {
    return largest_[static_cast<std::size_t>(head)].load(std::memory_order_relaxed);
  }

  // Folds the magnitudes of a task's rows into the heads' largest ones. The order does not matter.
  void find_largest(std::int64_t task) noexcept {
    for (std::int64_t first = 0; first < problem_.heads; first += kHeadsAtOnce) {
      const std::int64_t heads = std::min(kHeadsAtOnce, problem_.heads - first);
      std::array<Bits, kHeadsAtOnce> found{};
      for_rows(task, [&](std::int64_t batch, std::int64_t token) {
        for (std::int64_t i = 0; i < heads; ++i) {
          Bits& largest = found[static_cast<std::size_t>(i)];
          largest = std::max(largest, largest_magnitude(input(batch, token, first + i),
                                                        problem_.head_dim, Element::kMagnitude));
        }
      });
      for (std::int64_t i = 0; i < heads; ++i) {
        fold(largest_[static_cast<std::size_t>(first + i)], found[static_cast<std::size_t>(i)]);
      }
    }
  }

  void write(std::int64_t task) const noexcept {
    for_rows(task, [&](std::int64_t batch, std::int64_t token) {
      const Strides& s = problem_.out_strides;
      std::int8_t* out = problem_.out + batch * s.batch + token * s.seq;
      for (std::int64_t head = 0; head < problem_.heads; ++head) {
        quantize_row<Element>(input(batch, token, head), problem_.head_dim, problem_.scale[head],
                              out + head * s.heads);
      }
    });
  }

 private:
  static void fold(std::atomic<Bits>& shared, Bits found) noexcept {
    Bits known = shared.load(std::memory_order_relaxed);
    while (known < found &&
           !shared.compare_exchange_weak(known, found, std::memory_order_relaxed)) {
    }
  }
  template <typename Body>
  void for_rows(std::int64_t task, Body body) const noexcept {
    const std::int64_t begin = task * rows_per_task_;
    const std::int64_t end = std::min(problem_.rows(), begin + rows_per_task_);
    std::int64_t batch = begin / problem_.seq;
    std::int64_t token = begin % problem_.seq;
    for (std::int64_t row = begin; row < end; ++row) {
      body(batch, token);
      if (++token == problem_.seq) {
        token = 0;
        ++batch;
      }
    }
  }
  const Bits* input(std::int64_t batch, std::int64_t token, std::int64_t head) const noexcept {
    const Strides& s = problem_.input_strides;
    return static_cast<const Bits*>(problem_.input) + batch * s.batch + token * s.seq +
           head * s.heads;
  }

  const QuantizeProblem& problem_;
  std::vector<std::atomic<Bits>> largest_;  // per head
  std::int64_t rows_per_task_ = 1;
};

// Runs body(i) for every i in [0, count) on the threads that the options allow.
template <typename Body>
void spread(std::int64_t count, std::int64_t threads, const Executor& executor, Body body) {
  const auto task = [](void* argument, std::int64_t index) {
    const core::FloatEnvironment environment;
    (*static_cast<Body*>(argument))(index);
  };
  if (executor.run != nullptr) {
    executor.run(executor.context, count, task, &body);
    return;
  }
  if (threads <= 1) {
    for (std::int64_t i = 0; i < count; ++i) task(&body, i);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(static_cast <int>(threads))
  for (std::int64_t i = 0; i < count; ++i) task(&body, i);
}

template <typename Bits>
void check_finite(std::int64_t head, Bits largest, Bits infinity) {
  if (largest < infinity) return;
  throw Error(ErrorCode::invalid_argument,
              std::string("input holds ") + (largest == infinity ? "infinity" : "NaN") +
                  " in head " + std::to_string(head) + " (allowed: finite values)");
}

template <typename Element>
void quantize_elements(const QuantizeProblem& problem, const QuantizeOptions& options) {
  Passes<Element> passes(problem);
  const std::int64_t tasks = passes.tasks();
  // A tensor in memory has fewer than 2^63 elements, but a view may repeat them.
  const double elements =
      static_cast<double>(problem.rows()) * static_cast<double>(problem.heads * problem.head_dim);
  const auto worthwhile = static_cast<std::int64_t>(std::min(elements / kElementsPerThread, 1e6));
  const std::int64_t threads =
      std::min({cpu::usable_threads(options.threads), worthwhile + 1, tasks});
  spread(tasks, threads, options.executor, [&](std::int64_t i) { passes.find_largest(i); });
  for (std::int64_t head = 0; head < problem.heads; ++head) {
    check_finite(head, passes.largest(head), Element::kInfinity);
  }
  {
    const core::FloatEnvironment environment;
    for (std::int64_t head = 0; head < problem.heads; ++head) {
      problem.scale[head] = scale_for(Element::widen(passes.largest(head)));
    }
  }
  spread(tasks, threads, options.executor, [&](std::int64_t i) { passes.write(i); });
}

}  // namespace

void quantize_host(const QuantizeProblem& problem, const QuantizeOptions& options) {
  core::reporting_exhaustion("quantize", [&] {
    switch (problem.dtype) {
      case DataType::float16:
        return quantize_elements<Float16>(problem, options);
      case DataType::bfloat16:
        return quantize_elements<BFloat16>(problem, options);
      default:
        return quantize_elements<Float32>(problem, options);
    }
  });
}

}  // namespace qattn::quantization
