// cpu/amx_int8: both products on the tile registers (tdpbssd, tdpbsud), the softmax in AVX-512.
#include "cpu/tile/avx512vnni_lanes.hpp"
#include "cpu/tile/decode_chunk.hpp"
#include "cpu/tile/small_task.hpp"
#include "cpu/tile/steps.hpp"
#include "cpu/tile/tile_operands.hpp"
#include "cpu/tile/vector_chunk.hpp"

namespace qattn::cpu {
namespace {

template <int kRowVectors>
using Operands = TileOperands<Avx512VnniLanes, kRowVectors>;

}  // namespace
}  // namespace qattn::cpu

extern "C" void qattn_cpu_amx_int8_run(const qattn::cpu::Work& work) {
  using Lanes = qattn::cpu::Avx512VnniLanes;
  using Small = qattn::cpu::SmallTask;
  if (Small::takes(work)) return Small(work).run();
  // With one row for a head of K and V memory decides, and vectors read it faster than tiles load
  // it: by 4 to 17 % on two threads, as fast on one (docs/performance-cpu.md).
  using VectorChunk = qattn::cpu::VectorChunk<Lanes>;
  if (work.step == qattn::cpu::Step::chunk && work.problem->rows() == 1 &&
      VectorChunk::fits(*work.problem)) {
    return VectorChunk(work).run();
  }
  const qattn::cpu::TileScope tiles;
  using DecodeChunk = qattn::cpu::DecodeChunk<Lanes>;
  if (work.step == qattn::cpu::Step::chunk && DecodeChunk::fits(*work.problem)) {
    return DecodeChunk(work).run();
  }
  qattn::cpu::run_step<qattn::cpu::Operands<2>, qattn::cpu::Operands<1>>(work);
}
