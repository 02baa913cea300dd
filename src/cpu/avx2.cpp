// cpu/avx2: exact integer dot products from vpmaddwd on values widened to 16 bits.
#include "cpu/tile/avx2_lanes.hpp"
#include "cpu/tile/panel_operands.hpp"
#include "cpu/tile/steps.hpp"

namespace qattn::cpu {
namespace {

// Eight sums, two rows, an element and a product: within the 16 vector registers.
template <int kRowVectors>
using Operands = PanelOperands<Avx2Lanes, Pairs<Avx2Lanes>, kRowVectors, 4>;

}  // namespace
}  // namespace qattn::cpu

extern "C" void qattn_cpu_avx2_run(const qattn::cpu::Work& work) {
  qattn::cpu::run_step<qattn::cpu::Operands<2>, qattn::cpu::Operands<1>>(work);
}
