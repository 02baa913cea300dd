// Writes JSON (RFC 8259).
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace qattn::command {

/// Builds a JSON text, one value after another; the caller keeps begin and end in balance.
///
///     Json json;
///     json.begin_object().key("time_s").value(1.5).key("tags").begin_array().end_array();
///     json.end_object();
class Json {
 public:
  Json& begin_object() { return open('{'); }
  Json& end_object() { return close('}'); }
  Json& begin_array() { return open('['); }
  Json& end_array() { return close(']'); }
  /// Name of the member whose value comes next.
  Json& key(std::string_view name);
  /// Bytes outside ASCII are taken as UTF-8.
  Json& value(std::string_view text);
  Json& value(const char* text) { return value(std::string_view(text)); }
  /// The shortest text that reads back as the same number; null if it is not finite.
  Json& value(double number);
  Json& value(bool boolean);
  Json& value(std::integral auto number) { return raw(std::to_string(number)); }
  /// key() and value().
  template <typename T>
  Json& member(std::string_view name, const T& content) {
    return key(name).value(content);
  }
  const std::string& text() const { return text_; }

 private:
  Json& raw(std::string_view token);
  Json& open(char bracket);
  Json& close(char bracket);
  void separate();
  void quote(std::string_view text);

  std::string text_;
  bool first_ = true;  // nothing stands in the innermost bracket yet
  bool after_key_ = false;
};

}  // namespace qattn::command
