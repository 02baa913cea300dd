#include "command/npy_header.hpp"

#include <charconv>

#include "command/input_error.hpp"

namespace qattn::command {
namespace {

// More dimensions than NumPy itself allows.
constexpr std::size_t kMaxRank = 64;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  NpyHeader header() {
    NpyHeader header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !has_descr) {
        has_descr = true;
        header.descr = descr();
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        header.fortran_order = boolean();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        header.shape = shape();
      } else {
        fail("an unexpected or repeated key");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!text_.empty()) fail("something after its dictionary");
    if (!has_descr || !has_order || !has_shape) {
      fail("no descr, no fortran_order or no shape");
    }
    return header;
  }

 private:
  [[noreturn]] static void fail(const std::string& what) {
    throw InputError("its .npy header has " + what);
  }

  void skip_space() {
    const std::size_t end = text_.find_first_not_of(" \t\r\n");
    text_.remove_prefix(end == std::string_view::npos ? text_.size() : end);
  }

  bool accept(char c) {
    skip_space();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(std::string("no '") + c + "' where one belongs");
  }

  bool accept_word(std::string_view word) {
    skip_space();
    if (text_.substr(0, word.size()) != word) return false;
    text_.remove_prefix(word.size());
    return true;
  }

  std::string string() {
    skip_space();
    const char quote = text_.empty() ? '\0' : text_.front();
    if (quote != '\'' && quote != '"') fail("no string where one belongs");
    const std::size_t end = text_.find(quote, 1);
    if (end == std::string_view::npos) fail("a string without an end");
    std::string value(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return value;
  }

  std::string descr() {
    skip_space();
    if (!text_.empty() && text_.front() == '[') {
      throw InputError("its elements are records (allowed: int8, float16, float32)");
    }
    return string();
  }

  bool boolean() {
    if (accept_word("True")) return true;
    if (accept_word("False")) return false;
    fail("a fortran_order that is neither True nor False");
  }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> extents;
    expect('(');
    while (!accept(')')) {
      if (extents.size() == kMaxRank) fail("a shape of too many dimensions");
      extents.push_back(extent());
      if (!accept(',')) {
        expect(')');
        // "(3)" is a number in Python, "(3,)" a shape.
        if (extents.size() == 1) fail("a shape that is no tuple");
        break;
      }
    }
    return extents;
  }

  std::int64_t extent() {
    skip_space();
    std::int64_t value = 0;
    const char* const end = text_.data() + text_.size();
    const auto [rest, error] = std::from_chars(text_.data(), end, value);
    if (error != std::errc() || value < 0) fail("a shape that is not made of sizes");
    text_.remove_prefix(static_cast<std::size_t>(rest - text_.data()));
    return value;
  }

  std::string_view text_;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text) { return Parser(text).header(); }

}  // namespace qattn::command
