// cpu/avx2: exact integer dot products from vpmaddwd on values widened to 16 bits.
#include "cpu/tile/avx2_lanes.hpp"
#include "cpu/tile/panel_operands.hpp"
#include "cpu/tile/steps.hpp"
#include "cpu/tile/vector_chunk.hpp"

namespace qattn::cpu {
namespace {

// Eight sums, two rows, an element and a product: within the 16 vector registers.
template <int kRowVectors>
using Operands = PanelOperands<Avx2Lanes, Pairs<Avx2Lanes>, kRowVectors, 4>;

}  // namespace
}  // namespace qattn::cpu

extern "C" void qattn_cpu_avx2_run(const qattn::cpu::Work& work) {
  using VectorChunk = qattn::cpu::VectorChunk<qattn::cpu::Avx2Lanes>;
  if (work.step == qattn::cpu::Step::chunk && VectorChunk::fits(*work.problem)) {
    return VectorChunk(work).run();
  }
  qattn::cpu::run_step<qattn::cpu::Operands<2>, qattn::cpu::Operands<1>>(work);
}
