#include "core/features.hpp"

namespace qattn::core {

std::string FeatureSet::to_string() const {
  std::string text;
  for (int i = 0; i < kFeatureCount; ++i) {
    if (!has(static_cast<Feature>(i))) continue;
    if (!text.empty()) text += ", ";
    text += kFeatureNames[i];
  }
  return text;
}

}  // namespace qattn::core
