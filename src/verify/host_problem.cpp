#include "verify/host_problem.hpp"

#include <cmath>
#include <limits>

#include "verify/distributions.hpp"

namespace qattn::verify {
namespace {

std::size_t size_of(const Shape& shape) {
  return static_cast<std::size_t>(shape.batch * shape.seq * shape.heads * shape.head_dim);
}

template <typename T>
Buffer<T> place(const Device& device, const std::vector<T>& values) {
  return Buffer<T>(device, values.data(), values.size());
}

Int8Tensor with_memory(Int8Tensor view, const std::int8_t* data, const float* scale) {
  view.data = data;
  view.scale.data = scale;
  return view;
}

std::vector<float> nan_values(std::int64_t size) {
  return std::vector<float>(static_cast<std::size_t>(size),
                            std::numeric_limits<float>::quiet_NaN());
}

// Scale factors between 0.5 and 2, for scales that differ from head to head.
std::vector<float> spread(std::int64_t heads, double centre, Random& random) {
  std::vector<float> scales;
  for (std::int64_t h = 0; h < heads; ++h) {
    scales.push_back(static_cast<float>(centre * std::exp2(2 * random.uniform() - 1)));
  }
  return scales;
}

}  // namespace

std::string Dimensions::to_string() const {
  return "B" + std::to_string(batch) + "xSq" + std::to_string(seq_q) + "xSk" +
         std::to_string(seq_k) + "xHq" + std::to_string(heads_q) + "xHkv" +
         std::to_string(heads_kv) + "xD" + std::to_string(head_dim);
}

Int8Tensor HostProblem::q_view() const {
  const Dimensions& d = dimensions;
  return {q.data(), {d.batch, d.seq_q, d.heads_q, d.head_dim}, per_head(q_scale.data())};
}

Int8Tensor HostProblem::k_view() const {
  const Dimensions& d = dimensions;
  return {k.data(), {d.batch, d.seq_k, d.heads_kv, d.head_dim}, per_head(k_scale.data())};
}

Int8Tensor HostProblem::v_view() const {
  const Dimensions& d = dimensions;
  return {v.data(), {d.batch, d.seq_k, d.heads_kv, d.head_dim}, per_head(v_scale.data())};
}

Shape HostProblem::out_shape() const { return q_view().shape; }

std::int64_t HostProblem::out_size() const {
  return static_cast<std::int64_t>(size_of(out_shape()));
}

std::int64_t HostProblem::lse_size() const {
  return dimensions.batch * dimensions.heads_q * dimensions.seq_q;
}

Options HostProblem::options(Precision precision, const std::string& kernel) const {
  Options options;
  options.mask = mask;
  options.softmax_scale = softmax_scale;
  options.precision = precision;
  options.kernel = kernel;
  return options;
}

PlacedProblem::PlacedProblem(const HostProblem& problem, const Device& device)
    : problem_(problem),
      device_(device),
      q_(place(device, problem.q)),
      k_(place(device, problem.k)),
      v_(place(device, problem.v)),
      q_scale_(place(device, problem.q_scale)),
      k_scale_(place(device, problem.k_scale)),
      v_scale_(place(device, problem.v_scale)),
      out_(place(device, nan_values(problem.out_size()))),
      lse_(place(device, nan_values(problem.lse_size()))),
      token_(place(device, nan_values(1))) {}

void PlacedProblem::forward(Precision precision, const std::string& kernel, int threads) {
  Options options = problem_.options(precision, kernel);
  options.threads = threads;
  options.lse = lse_.data();
  qattn::forward(device_, with_memory(problem_.q_view(), q_.data(), q_scale_.data()),
                 with_memory(problem_.k_view(), k_.data(), k_scale_.data()),
                 with_memory(problem_.v_view(), v_.data(), v_scale_.data()),
                 OutputTensor(out_.data(), problem_.out_shape()), options);
}

void PlacedProblem::wait() {
  float token = 0;
  token_.copy_to(&token);  // comes after all earlier work on the stream
}

Result PlacedProblem::result() const {
  Result result;
  result.out.resize(out_.size());
  result.lse.resize(lse_.size());
  out_.copy_to(result.out.data());
  lse_.copy_to(result.lse.data());
  return result;
}

Result run(const HostProblem& problem, const Device& device, Precision precision,
           const std::string& kernel, int threads) {
  PlacedProblem placed(problem, device);
  placed.forward(precision, kernel, threads);
  return placed.result();
}

Result run_reference(const HostProblem& problem) {
  return run(problem, Device::cpu(), Precision::high, "reference/float64");
}

HostProblem random_problem(const Dimensions& dimensions, Mask mask, std::uint64_t seed,
                           double score_sd) {
  HostProblem problem;
  problem.dimensions = dimensions;
  problem.mask = mask;
  problem.q.resize(size_of(problem.q_view().shape));
  problem.k.resize(size_of(problem.k_view().shape));
  problem.v.resize(size_of(problem.v_view().shape));

  Random random(seed);
  fill_uniform(problem.q, random);
  fill_uniform(problem.k, random);
  fill_uniform(problem.v, random);
  problem.k_scale = spread(dimensions.heads_kv, 0.02, random);
  problem.v_scale = spread(dimensions.heads_kv, 0.01, random);

  // A product of two values uniform over -128..127 has variance ((256^2 - 1) / 12)^2, but for their
  // mean of -1/2; a score is a sum of head_dim of them times softmax_scale = 1 / sqrt(head_dim).
  const double unscaled_sd = (256.0 * 256.0 - 1) / 12;
  for (std::int64_t h = 0; h < dimensions.heads_q && dimensions.heads_kv > 0; ++h) {
    const std::int64_t h_kv = h * dimensions.heads_kv / dimensions.heads_q;
    const double sd = score_sd * (0.75 + 0.5 * random.uniform());
    problem.q_scale.push_back(
        static_cast<float>(sd / (unscaled_sd * problem.k_scale[static_cast<std::size_t>(h_kv)])));
  }
  return problem;
}

}  // namespace qattn::verify
