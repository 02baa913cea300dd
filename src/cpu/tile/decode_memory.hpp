// What a chunk task of several heads (decode_chunk.hpp) keeps in its scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/decode_shape.hpp"
#include "cpu/tile/tile_registers.hpp"
#include "cpu/work.hpp"

namespace qattn::cpu {
namespace {

struct DecodeMemory {
  std::int32_t* queries;  // [head][quad of columns][lane]
  float* output;          // [head][row][column]
  // [set][lane]
  float* factor;
  float* negated;
  float* maximum;
  float* sum;
  std::int32_t* visible;
  float* old_weight;  // of the group, as the next one
  float* new_weight;
  float* scores;          // [set][key][lane]
  std::int32_t* by_lane;  // [set][lane][key] probabilities
  std::int8_t* expanded;  // [head][tile of a run][operand][unit and byte][key] left operands
  std::int32_t* sums;     // [head][two operands by 64 columns], each a tile
  // One set and group.
  float* group_maximum;  // [lane]
  float* group_keys;
  std::int32_t* group_sum;
  std::int32_t* codes;  // [key][lane]
  std::int8_t* tail;    // rows of a tile that reaches beyond the tensor

  DecodeMemory(std::byte* scratch, const DecodeShape& shape) {
    std::byte* end = scratch;
    const auto take = [&]<class T>(T*& array, std::int64_t count) {
      array = reinterpret_cast<T*>(end);
      end += count * static_cast<std::int64_t>(sizeof(T));  // whole cache lines, all of them
    };
    take(queries, shape.query_elements());
    take(output, shape.output_elements());
    for (float** values : {&factor, &negated, &maximum, &sum}) {
      take(*values, shape.sets() * kSetLanes);
    }
    take(visible, shape.sets() * kSetLanes);
    take(old_weight, shape.sets() * kSetLanes);
    take(new_weight, shape.sets() * kSetLanes);
    take(scores, shape.sets() * kGroupKeys * kSetLanes);
    take(by_lane, shape.sets() * kGroupKeys * kSetLanes);
    take(expanded, shape.heads * kRunTiles * 2 * kTileBytes);
    take(sums, shape.sum_elements());
    take(group_maximum, kSetLanes);
    take(group_keys, kSetLanes);
    take(group_sum, kSetLanes);
    take(codes, kGroupKeys * kSetLanes);
    take(tail, kTileBytes);
  }
};

}  // namespace
}  // namespace qattn::cpu
