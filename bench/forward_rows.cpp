// forward/<kernel>/<precision>/<mask>/B_xS_xH_xD_, with the peers of each problem next to it;
// staged/..., the same from and to pageable host memory.
#include "cuda_rows.hpp"
#include "rows.hpp"

namespace qattn::bench {
namespace {

struct ForwardRow {
  Device device;
  Device memory;
  Extents extents;
  Mask mask;
  Precision precision;
  std::string kernel;
  Threads threads;
};

void run_forward(benchmark::State& state, TensorCache& cache, const ForwardRow& row) {
  Tensors& tensors = cache.get(row.memory, row.extents);
  Options options;
  options.mask = row.mask;
  options.precision = row.precision;
  options.kernel = row.kernel;
  options.threads = row.threads == Threads::one ? 1 : 0;
  const Int8Tensor q = tensors.q();
  const Int8Tensor k = tensors.k();
  const Int8Tensor v = tensors.v();
  const OutputTensor out = tensors.out();
  if (row.memory.kind() == Device::Kind::cpu) {
    for ([[maybe_unused]] auto _ : state) forward(row.device, q, k, v, out, options);
  } else {
    time_on_cuda(state, [&] { forward(row.device, q, k, v, out, options); });
  }
  count_operations(state, row.extents.operations(row.mask.kind == Mask::Kind::causal),
                   row.device.kind() == Device::Kind::cpu ? thread_count(row.threads) : 1);
}

void register_forward(TensorCache& cache, const ForwardRow& row) {
  const std::string word = row.memory == row.device ? "forward" : "staged";
  const std::string name = first_word(word, row.threads) + "/" + row.kernel + "/" +
                           to_string(row.precision) + "/" + to_string(row.mask) + "/" +
                           square_name(row.extents);
  add_row(
      name, [&cache, row](benchmark::State& state) { run_forward(state, cache, row); },
      clock_of(row.memory));
}

struct Shape {
  Extents extents;
  bool small;      // for kernels that would take minutes on the others
  bool full_mask;  // besides the causal one
};

std::vector<Shape> cpu_shapes() {
  return {{square(2, 72, 4, 32), true, true},
          {square(1, 512, 16, 64), true, true},
          {square(1, 2048, 16, 128), false, true},
          {square(1, 8192, 8, 128), false, true}};
}

std::vector<Shape> cuda_shapes() {
  std::vector<Shape> shapes = cpu_shapes();
  shapes.push_back({square(1, 16384, 16, 128), false, true});
  shapes.push_back({square(4, 4096, 16, 128), false, false});
  shapes.push_back({square(16, 1024, 16, 128), false, false});
  shapes.push_back({square(1, 16384, 32, 64), false, false});
  shapes.push_back({square(1, 16384, 8, 256), false, false});
  return shapes;
}

/// Rows of one problem on one device: its kernels at both precisions.
void register_kernels(TensorCache& cache, const Device& device, const Shape& shape,
                      const Mask& mask, Threads threads) {
  for (const std::string& kernel : usable_kernels(device)) {
    if (kernel == "cpu/scalar" && !shape.small) continue;
    for (const Precision precision : {Precision::high, Precision::fast}) {
      register_forward(cache, {device, device, shape.extents, mask, precision, kernel, threads});
    }
  }
}

}  // namespace

void register_forward_rows(TensorCache& cache) {
  for (const Shape& shape : cpu_shapes()) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      if (mask.kind == Mask::Kind::full && !shape.full_mask) continue;
      for (const Threads threads : kBothThreadCounts) {
        register_eigen_rows(cache, shape.extents, mask, threads);
        register_kernels(cache, Device::cpu(), shape, mask, threads);
      }
    }
  }
  if (usable_kernels(Device::cuda()).empty()) return;
  const std::size_t compared_with_peer = cpu_shapes().size();
  std::size_t index = 0;
  for (const Shape& shape : cuda_shapes()) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      if (mask.kind == Mask::Kind::full && !shape.full_mask) continue;
      if (index < compared_with_peer) {
        register_one_thread_per_query_rows(cache, shape.extents, mask);
      }
      register_kernels(cache, Device::cuda(), shape, mask, Threads::all);
    }
    ++index;
  }
  for (const Extents& extents : {square(1, 2048, 16, 128), square(1, 16384, 16, 128)}) {
    const std::string kernel = usable_kernels(Device::cuda()).front();
    register_forward(cache, {Device::cuda(), Device::cpu(), extents, Mask::causal(),
                             Precision::high, kernel, Threads::all});
  }
}

}  // namespace qattn::bench
