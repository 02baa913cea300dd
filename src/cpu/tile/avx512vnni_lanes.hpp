// Sixteen lanes of AVX-512 with VNNI.
#pragma once

#include "cpu/tile/avx512_lanes.hpp"

namespace qattn::cpu {
namespace {

struct Avx512VnniLanes : Avx512Lanes {
  // sum += four u8 of `rows` by four s8 of `panel`, exactly.
  static Ints dot_quads(Ints sum, Ints rows, Ints panel) {
    return _mm512_dpbusd_epi32(sum, rows, panel);
  }
};

}  // namespace
}  // namespace qattn::cpu
