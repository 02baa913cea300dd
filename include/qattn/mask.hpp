// Which keys a query may see.
#pragma once

#include <cstdint>
#include <limits>

namespace qattn {

/// Visibility of keys. Query i sits at position p = i + (seq_k - seq_q): the last query is aligned
/// with the last key ("bottom-right"). A query that sees no key gets output 0 and lse -infinity.
struct Mask {
  enum class Kind : std::uint8_t {
    causal,    ///< key j is visible iff j <= p
    full,      ///< every key is visible
    window,    ///< key j is visible iff p - window_left <= j <= p + window_right (inclusive)
    boolean,   ///< key j is visible iff the entry of `data` is true
    additive,  ///< the entry of `data` (float32) is added to the score
  };
  /// A window bound that excludes nothing. Negative bounds mean the same.
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

  Kind kind = Kind::causal;
  /// Bounds of a window. With any other kind they must exclude nothing, or be left as they are
  /// here: a bound that would be ignored is refused.
  std::int64_t window_left = kUnlimited;
  std::int64_t window_right = 0;
  /// Entries (batch, heads_q, seq_q, seq_k) of a boolean (uint8) or additive (float32) mask, with
  /// strides in elements; a stride of 0 broadcasts. Null and 0 with any other kind.
  const void* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t query_stride = 0;

  /// Key j is visible to query i iff j <= i + (seq_k - seq_q).
  static constexpr Mask causal() noexcept { return {}; }
  /// Every key is visible to every query.
  static constexpr Mask full() noexcept {
    Mask mask;
    mask.kind = Kind::full;
    mask.window_right = kUnlimited;
    return mask;
  }
  /// Sliding window around the query's position, both bounds inclusive.
  static constexpr Mask window(std::int64_t left, std::int64_t right) noexcept {
    Mask mask;
    mask.kind = Kind::window;
    mask.window_left = left;
    mask.window_right = right;
    return mask;
  }
};

}  // namespace qattn
