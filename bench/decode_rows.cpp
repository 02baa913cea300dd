// decode/<kernel>/<precision>/B_xHq_xHkv_xD_xL_: one query token against a long cache of keys and
// values that comes from memory, as it does when tokens are generated layer after layer.
#include "cuda_rows.hpp"
#include "rows.hpp"

namespace qattn::bench {
namespace {

// K and V of all copies together must not fit into any cache (300 MB of L3 on some machines).
constexpr std::int64_t kRotatedBytes = std::int64_t{1} << 30;

struct DecodeRow {
  Device device;
  Extents extents;
  Precision precision;
  std::string kernel;
  Threads threads;
};

std::int64_t copies_to_rotate(const Extents& extents) {
  return kRotatedBytes / static_cast<std::int64_t>(extents.key_value_bytes()) + 1;
}

std::string decode_name(const Extents& extents) {
  return extents_name({{"B", extents.batch},
                       {"xHq", extents.heads_q},
                       {"xHkv", extents.heads_kv},
                       {"xD", extents.head_dim},
                       {"xL", extents.seq_k}});
}

void run_decode(benchmark::State& state, TensorCache& cache, const DecodeRow& row) {
  Tensors& tensors = cache.get(row.device, row.extents, copies_to_rotate(row.extents));
  Options options;  // causal: the one query is the last token and sees every key
  options.precision = row.precision;
  options.kernel = row.kernel;
  options.threads = row.threads == Threads::one ? 1 : 0;
  const Int8Tensor q = tensors.q();
  const OutputTensor out = tensors.out();
  std::int64_t copy = 0;
  const auto step = [&] {
    forward(row.device, q, tensors.k(copy), tensors.v(copy), out, options);
    copy = (copy + 1) % tensors.copies();
  };
  if (row.device.kind() == Device::Kind::cpu) {
    for ([[maybe_unused]] auto _ : state) step();
  } else {
    time_on_cuda(state, step);
  }
  const int threads = row.device.kind() == Device::Kind::cpu ? thread_count(row.threads) : 1;
  count_bytes(state, row.extents.key_value_bytes(), threads);
  count_operations(state, row.extents.operations(false), threads);
}

Extents decode(std::int64_t batch, std::int64_t heads_q, std::int64_t heads_kv,
               std::int64_t head_dim, std::int64_t seq_k) {
  return {batch, 1, seq_k, heads_q, heads_kv, head_dim};
}

void register_device(TensorCache& cache, const Device& device, const std::vector<Extents>& problems,
                     Threads threads) {
  for (const Extents& extents : problems) {
    for (const std::string& kernel : usable_kernels(device)) {
      if (kernel == "cpu/scalar") continue;  // a second or more for each token, and of no interest
      for (const Precision precision : {Precision::high, Precision::fast}) {
        const DecodeRow row{device, extents, precision, kernel, threads};
        add_row(
            first_word("decode", threads) + "/" + kernel + "/" + to_string(precision) + "/" +
                decode_name(extents),
            [&cache, row](benchmark::State& state) { run_decode(state, cache, row); },
            clock_of(device));
      }
    }
  }
}

}  // namespace

void register_decode_rows(TensorCache& cache) {
  const std::vector<Extents> cpu = {decode(1, 32, 32, 128, 32768), decode(1, 32, 8, 128, 32768)};
  for (const Extents& extents : cpu) {
    for (const Threads threads : kBothThreadCounts) {
      register_device(cache, Device::cpu(), {extents}, threads);
    }
  }
  std::vector<Extents> cuda = cpu;
  cuda.push_back(decode(32, 32, 8, 128, 8192));
  cuda.push_back(decode(64, 64, 8, 128, 4096));
  register_device(cache, Device::cuda(), cuda, Threads::all);
}

}  // namespace qattn::bench
