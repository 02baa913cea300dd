// cpu/avx512: as cpu/avx2 with 16 lanes.
#include "cpu/tile/avx512_lanes.hpp"
#include "cpu/tile/panel_operands.hpp"
#include "cpu/tile/steps.hpp"
#include "cpu/tile/vector_chunk.hpp"

namespace qattn::cpu {
namespace {

template <int kRowVectors>
using Operands = PanelOperands<Avx512Lanes, Pairs<Avx512Lanes>, kRowVectors, 8>;

}  // namespace
}  // namespace qattn::cpu

extern "C" void qattn_cpu_avx512_run(const qattn::cpu::Work& work) {
  using VectorChunk = qattn::cpu::VectorChunk<qattn::cpu::Avx512Lanes>;
  if (work.step == qattn::cpu::Step::chunk && VectorChunk::fits(*work.problem)) {
    return VectorChunk(work).run();
  }
  qattn::cpu::run_step<qattn::cpu::Operands<2>, qattn::cpu::Operands<1>>(work);
}
