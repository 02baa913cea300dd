// The simplest attention kernel there is: one thread computes one query of one head, in float, with
// an online softmax (Milakov and Gimelshein 2018, algorithm 3).
#include <cstdint>

#include "cuda_check.hpp"
#include "cuda_kernels.hpp"

namespace qattn::bench {
namespace {

constexpr int kHeadDimMax = 256;
constexpr int kThreads = 128;

__global__ void one_thread_per_query(PeerProblem problem) {
  const std::int64_t index = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x;
  if (index >= problem.batch * problem.heads * problem.seq) return;
  const std::int64_t query = index % problem.seq;
  const std::int64_t h = index / problem.seq % problem.heads;
  const std::int64_t b = index / problem.seq / problem.heads;
  const std::int64_t stride = problem.heads * problem.head_dim;
  const std::int64_t head = b * problem.seq * stride + h * problem.head_dim;
  const int dim = static_cast<int>(problem.head_dim);
  const std::int8_t* q = problem.q + head + query * stride;
  const float factor =
      problem.q_scale[h] * problem.k_scale[h] / sqrtf(static_cast<float>(problem.head_dim));

  float maximum = -INFINITY;
  float sum = 0;
  float weighted[kHeadDimMax];
  for (int d = 0; d < dim; ++d) weighted[d] = 0;
  const std::int64_t visible = problem.causal ? query + 1 : problem.seq;
  for (std::int64_t j = 0; j < visible; ++j) {
    const std::int8_t* k = problem.k + head + j * stride;
    const std::int8_t* v = problem.v + head + j * stride;
    float dot = 0;
    for (int d = 0; d < dim; ++d) dot += static_cast<float>(q[d]) * static_cast<float>(k[d]);
    const float score = dot * factor;
    const float raised = fmaxf(maximum, score);
    const float rescale = expf(maximum - raised);
    const float weight = expf(score - raised);
    maximum = raised;
    sum = sum * rescale + weight;
    for (int d = 0; d < dim; ++d) {
      weighted[d] = weighted[d] * rescale + weight * static_cast<float>(v[d]);
    }
  }
  float* out = problem.out + head + query * stride;
  for (int d = 0; d < dim; ++d) out[d] = weighted[d] / sum * problem.v_scale[h];
}

}  // namespace

void launch_one_thread_per_query(const PeerProblem& problem) {
  const std::int64_t queries = problem.batch * problem.heads * problem.seq;
  const auto blocks = static_cast<unsigned>((queries + kThreads - 1) / kThreads);
  one_thread_per_query<<<blocks, kThreads>>>(problem);
  check(cudaPeekAtLastError(), "launch of one_thread_per_query");
}

}  // namespace qattn::bench
