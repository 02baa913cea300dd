#include "dispatch/verbose.hpp"

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace qattn::dispatch {
namespace {

std::string describe(const Device& device, const core::Problem& p) {
  return device.name() + " B" + std::to_string(p.batch) + " Sq" + std::to_string(p.seq_q) + " Sk" +
         std::to_string(p.seq_k) + " Hq" + std::to_string(p.heads_q) + " Hkv" +
         std::to_string(p.heads_kv) + " D" + std::to_string(p.head_dim) +
         (p.mask == Mask::Kind::causal ? " causal" : " full") +
         (p.precision == Precision::high ? " high" : " fast");
}

// Distinct problems remembered; past that, further ones are printed no more (bounded memory).
constexpr std::size_t kMaxRemembered = 4096;

}  // namespace

void print_decision_once(const Device& device, const Selection& selection) {
  static std::mutex mutex;
  static auto* const seen = new std::set<std::string>;  // leaked: see config()
  const std::string problem = describe(device, *selection.problem);
  const std::lock_guard<std::mutex> lock(mutex);
  if (seen->size() >= kMaxRemembered || !seen->insert(problem).second) return;
  std::fprintf(stderr, "qattn: %s\n%s", problem.c_str(), explain(selection).to_string().c_str());
}

}  // namespace qattn::dispatch
