// cpu/avx512vnni: four multiply-adds of u8 by s8 per lane and instruction (vpdpbusd).
#include "cpu/tile/avx512vnni_lanes.hpp"
#include "cpu/tile/panel_operands.hpp"
#include "cpu/tile/small_task.hpp"
#include "cpu/tile/steps.hpp"
#include "cpu/tile/vector_chunk.hpp"

namespace qattn::cpu {
namespace {

template <int kRowVectors>
using Operands = PanelOperands<Avx512VnniLanes, Quads<Avx512VnniLanes>, kRowVectors, 8>;

}  // namespace
}  // namespace qattn::cpu

extern "C" void qattn_cpu_avx512vnni_run(const qattn::cpu::Work& work) {
  using Lanes = qattn::cpu::Avx512VnniLanes;
  using Small = qattn::cpu::SmallTask;
  if (Small::takes(work)) return Small(work).run();
  using VectorChunk = qattn::cpu::VectorChunk<Lanes>;
  if (work.step == qattn::cpu::Step::chunk && VectorChunk::fits(*work.problem)) {
    return VectorChunk(work).run();
  }
  qattn::cpu::run_step<qattn::cpu::Operands<2>, qattn::cpu::Operands<1>>(work);
}
