// cpu/avx512vnni: four multiply-adds of u8 by s8 per lane and instruction (vpdpbusd).
#include "cpu/tile/avx512_lanes.hpp"
#include "cpu/tile/panel_operands.hpp"
#include "cpu/tile/task.hpp"

namespace qattn::cpu {
namespace {

struct Avx512VnniLanes : Avx512Lanes {
  static Ints dot_quads(Ints sum, Ints rows, Ints panel) {
    return _mm512_dpbusd_epi32(sum, rows, panel);
  }
};

template <int kRowVectors>
using Operands = PanelOperands<Avx512VnniLanes, Quads<Avx512VnniLanes>, kRowVectors, 8>;

}  // namespace
}  // namespace qattn::cpu

extern "C" void qattn_cpu_avx512vnni_run(const qattn::cpu::Work& work) {
  qattn::cpu::Task<qattn::cpu::Operands<2>, qattn::cpu::Operands<1>>(work).run();
}
