// cpu/avxvnni: four multiply-adds of u8 by s8 per lane and instruction (VEX-encoded vpdpbusd).
#include "cpu/tile/avx2_lanes.hpp"
#include "cpu/tile/panel_operands.hpp"
#include "cpu/tile/steps.hpp"
#include "cpu/tile/vector_chunk.hpp"

namespace qattn::cpu {
namespace {

struct AvxVnniLanes : Avx2Lanes {
  static Ints dot_quads(Ints sum, Ints rows, Ints panel) {
    return _mm256_dpbusd_avx_epi32(sum, rows, panel);
  }
};

// Eight sums of one row vector: sixteen for two would not fit 16 registers.
using Operands = PanelOperands<AvxVnniLanes, Quads<AvxVnniLanes>, 1, 8>;

}  // namespace
}  // namespace qattn::cpu

extern "C" void qattn_cpu_avxvnni_run(const qattn::cpu::Work& work) {
  using VectorChunk = qattn::cpu::VectorChunk<qattn::cpu::AvxVnniLanes>;
  if (work.step == qattn::cpu::Step::chunk && VectorChunk::fits(*work.problem)) {
    return VectorChunk(work).run();
  }
  qattn::cpu::run_step<qattn::cpu::Operands, qattn::cpu::Operands>(work);
}
