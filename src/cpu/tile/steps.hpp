// The steps of a task (work.hpp) on the tile loop.
#pragma once

#include "cpu/tile/merge.hpp"
#include "cpu/tile/task.hpp"

namespace qattn::cpu {
namespace {

template <class Block, class Tail>
inline void run_chunk(const Work& work) {
  Work one = work;
  for (; one.head_count != 0; ++one.head_kv, --one.head_count) {
    Task<Block, Tail>(one).run_chunk();
  }
}

template <class Block, class Tail>
inline void run_step(const Work& work) {
  switch (work.step) {
    case Step::whole:
      return Task<Block, Tail>(work).run();
    case Step::chunk:
      return run_chunk<Block, Tail>(work);
    case Step::merge:
      return merge_chunks<typename Block::Lanes>(work);
  }
}

}  // namespace
}  // namespace qattn::cpu
