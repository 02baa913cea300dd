// peer/eigen_f32: what a float32 implementation on Eigen does with the same tensors.
#include <omp.h>

#include <cmath>
#include <memory>
#include <new>

#include "isa_table.hpp"
#include "rows.hpp"

namespace qattn::bench {
namespace {

/// Scratch memory of every thread, allocated once: the peer is not charged for it.
class Scratch {
 public:
  Scratch(int threads, std::int64_t floats) {
    for (int t = 0; t < threads; ++t) {
      parts_.emplace_back(static_cast<float*>(
          ::operator new(static_cast<std::size_t>(floats) * sizeof(float), kAlignment)));
    }
  }
  float* of(int thread) const { return parts_[static_cast<std::size_t>(thread)].get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* data) const { ::operator delete(data, kAlignment); }
  };
  std::vector<std::unique_ptr<float, Free>> parts_;
};

/// All heads of the problem, OpenMP over batch x head.
void run_peer(PeerFunction peer, Tensors& tensors, const PeerHead& settings, int threads,
              const Scratch& scratch) {
  const Extents& extents = tensors.extents();
  const Int8Tensor q = tensors.q();
  const Int8Tensor k = tensors.k();
  const Int8Tensor v = tensors.v();
  auto* out = static_cast<float*>(tensors.out().data);
  const double softmax_scale = 1.0 / std::sqrt(static_cast<double>(extents.head_dim));
  const std::int64_t tasks = extents.batch * extents.heads_q;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (std::int64_t task = 0; task < tasks; ++task) {
    const std::int64_t h = task % extents.heads_q;
    const std::int64_t offset = task / extents.heads_q * q.strides.batch + h * q.strides.heads;
    PeerHead head = settings;
    head.q = static_cast<const std::int8_t*>(q.data) + offset;
    head.k = static_cast<const std::int8_t*>(k.data) + offset;
    head.v = static_cast<const std::int8_t*>(v.data) + offset;
    head.out = out + offset;
    head.token_stride = q.strides.seq;
    head.seq = extents.seq_q;
    head.head_dim = extents.head_dim;
    head.score_factor = static_cast<float>(softmax_scale * static_cast<double>(q.scale.data[h]) *
                                           static_cast<double>(k.scale.data[h]));
    head.v_scale = v.scale.data[h];
    head.scratch = scratch.of(omp_get_thread_num());
    peer(head);
  }
}

void run_row(benchmark::State& state, TensorCache& cache, const Extents& extents,
             const PeerHead& settings, Threads threads) {
  static const PeerFunction peer = best_of<PeerFunction>("eigen");
  // Beyond this length the check would take longer than the row.
  constexpr std::int64_t kCheckedSeq = 512;
  Tensors& tensors = cache.get(Device::cpu(), extents);
  const int team = thread_count(threads);
  const Scratch scratch(team, peer_scratch_floats(extents.seq_q, extents.head_dim));
  if (settings.softmax && extents.seq_q <= kCheckedSeq) {
    run_peer(peer, tensors, settings, team, scratch);
    const Mask mask = settings.causal ? Mask::causal() : Mask::full();
    const std::string difference = difference_from_library(tensors, mask, tensors.out_on_host());
    if (!difference.empty()) return state.SkipWithError(difference.c_str());
  }
  for ([[maybe_unused]] auto _ : state) run_peer(peer, tensors, settings, team, scratch);
  count_operations(state, extents.operations(settings.causal), team);
}

}  // namespace

void register_eigen_rows(TensorCache& cache, const Extents& extents, const Mask& mask,
                         Threads threads) {
  for (const bool softmax : {true, false}) {
    PeerHead settings;
    settings.causal = mask.kind == Mask::Kind::causal;
    settings.softmax = softmax;
    const std::string name = softmax ? "eigen_f32" : "eigen_f32_products";
    add_row(first_word("peer", threads) + "/" + name + "/" + to_string(mask) + "/" +
                square_name(extents),
            [&cache, extents, settings, threads](benchmark::State& state) {
              run_row(state, cache, extents, settings, threads);
            });
  }
}

}  // namespace qattn::bench
