#include "core/unused.hpp"

#include <limits>
#include <string>

#include "core/view.hpp"

namespace qattn::core {
namespace {

// Refuses fields of a part of an argument: "ARGUMENT.PART.FIELD is 3 with KIND (allowed: ...)".
// Texts are put together when something is refused: every call of the API comes by here.
class Unused {
 public:
  Unused(const char* argument, const char* part, const char* kind)
      : argument_(argument), part_(part), kind_(kind) {}

  void number(const char* field, std::int64_t value, const char* allowed = "0") const {
    if (value != 0) refuse_field(field, std::to_string(value), allowed);
  }
  void pointer(const char* field, const void* value) const {
    if (value != nullptr) refuse_field(field, "set", "null");
  }
  [[noreturn]] void refuse_field(const char* field, const std::string& value,
                                 const std::string& allowed) const {
    refuse(std::string(argument_) + part_ + "." + field + " is " + value + " with " + kind_ +
           ", which does not read it (allowed: " + allowed + ")");
  }

 private:
  const char* argument_;
  const char* part_;  // of the argument, together with a dot; may be empty
  const char* kind_;
};

const char* kind_text(Mask::Kind kind) {
  switch (kind) {
    case Mask::Kind::causal:
      return "mask kind causal";
    case Mask::Kind::full:
      return "mask kind full";
    case Mask::Kind::window:
      return "mask kind window";
    case Mask::Kind::boolean:
      return "mask kind boolean";
    default:
      return "mask kind additive";
  }
}

// Positions differ by less than 2^31: extents do.
bool excludes_nothing(std::int64_t bound) {
  return bound < 0 || bound >= std::numeric_limits<std::int32_t>::max();
}

}  // namespace

void refuse_unused(const Mask& mask) {
  const Unused unused("options", ".mask", kind_text(mask.kind));
  if (mask.kind != Mask::Kind::window) {
    if (!excludes_nothing(mask.window_left)) {
      unused.refuse_field("window_left", std::to_string(mask.window_left), "Mask::kUnlimited");
    }
    if (!excludes_nothing(mask.window_right)) {
      unused.number("window_right", mask.window_right, "0, Mask::kUnlimited");
    }
  }
  if (mask.kind == Mask::Kind::boolean || mask.kind == Mask::Kind::additive) return;
  unused.pointer("data", mask.data);
  unused.number("batch_stride", mask.batch_stride);
  unused.number("head_stride", mask.head_stride);
  unused.number("query_stride", mask.query_stride);
}

void refuse_unused_block(const char* name, const char* field, Scale::Granularity granularity,
                         std::int64_t block_tokens) {
  if (granularity == Scale::Granularity::per_block) return;
  Unused(name, field, "a granularity other than per_block").number("block_tokens", block_tokens);
}

void refuse_unused(const char* name, const Int8Tensor& tensor) {
  refuse_unused_block(name, ".scale", tensor.scale.granularity, tensor.scale.block_tokens);
  using Kind = SequenceLayout::Kind;
  const SequenceLayout& layout = tensor.layout;
  const Unused unused(name, ".layout",
                      layout.kind == Kind::dense    ? "layout kind dense"
                      : layout.kind == Kind::packed ? "layout kind packed"
                                                    : "layout kind paged");
  if (layout.kind == Kind::dense) unused.number("sequences", layout.sequences);
  if (layout.kind != Kind::packed) unused.pointer("offsets", layout.offsets);
  if (layout.kind != Kind::paged) {
    unused.pointer("lengths", layout.lengths);
    unused.pointer("block_table", layout.block_table);
    unused.number("block_table_stride", layout.block_table_stride);
  }
}

void refuse_unused(const Executor& executor) {
  if (executor.run == nullptr) {
    Unused("options", ".executor", "executor.run null").pointer("context", executor.context);
  }
}

void refuse_unused(const OutputTensor& out) {
  if (out.dtype == DataType::int8) {
    refuse_unused_block("out", ".scale", out.scale.granularity, out.scale.block_tokens);
    return;
  }
  const Unused unused("out", ".scale",
                      out.dtype == DataType::float32   ? "dtype float32"
                      : out.dtype == DataType::float16 ? "dtype float16"
                                                       : "dtype bfloat16");
  unused.pointer("data", out.scale.data);
  unused.number("block_tokens", out.scale.block_tokens);
}

}  // namespace qattn::core
