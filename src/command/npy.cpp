#include "command/npy.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "command/input_error.hpp"
#include "command/npy_header.hpp"

namespace qattn::command {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read and written as they are");

constexpr char kMagic[] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
// Real headers take a hundred bytes; format version 2 could claim four billion.
constexpr std::size_t kMaxHeaderBytes = 1 << 16;
constexpr std::size_t kHeaderAlignment = 64;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string system_error() { return std::strerror(errno); }

std::size_t element_bytes(NpyType type) {
  return type == NpyType::int8 ? 1 : type == NpyType::float16 ? 2 : 4;
}

// Reads `count` bytes. Memory grows with what arrives, not with what a header promised.
std::vector<std::byte> read_bytes(std::FILE* file, std::size_t count, const char* what) {
  constexpr std::size_t kFirstStep = 1 << 20;
  std::vector<std::byte> bytes;
  while (bytes.size() < count) {
    const std::size_t have = bytes.size();
    const std::size_t step = std::min(count - have, std::max(kFirstStep, have));
    bytes.resize(have + step);
    const std::size_t got = std::fread(bytes.data() + have, 1, step, file);
    if (got == step) continue;
    if (std::ferror(file) != 0) throw InputError("cannot be read: " + system_error());
    throw InputError(std::string("is truncated: ") + what + " takes " + std::to_string(count) +
                     " bytes, the file has " + std::to_string(have + got));
  }
  return bytes;
}

std::string read_header(std::FILE* file) {
  char magic[sizeof kMagic];
  const std::size_t got = std::fread(magic, 1, sizeof magic, file);
  if (std::ferror(file) != 0) throw InputError("cannot be read: " + system_error());
  if (got != sizeof magic || std::memcmp(magic, kMagic, sizeof magic) != 0) {
    throw InputError("is not a .npy file");
  }
  const std::vector<std::byte> version = read_bytes(file, 2, "its format version");
  const int major = std::to_integer<int>(version[0]);
  if (major < 1 || major > 3 || version[1] != std::byte{0}) {
    throw InputError("has .npy format version " + std::to_string(major) + "." +
                     std::to_string(std::to_integer<int>(version[1])) + " (allowed: 1.0 to 3.0)");
  }
  std::size_t length = 0;
  const std::vector<std::byte> field = read_bytes(file, major == 1 ? 2 : 4, "its header length");
  std::memcpy(&length, field.data(), field.size());
  if (length > kMaxHeaderBytes) {
    throw InputError("has a .npy header of " + std::to_string(length) +
                     " bytes (allowed: " + std::to_string(kMaxHeaderBytes) + ")");
  }
  const std::vector<std::byte> header = read_bytes(file, length, "its header");
  return {reinterpret_cast<const char*>(header.data()), header.size()};
}

// The type that a description names; empty for all but the three.
std::optional<NpyType> known_type(const std::string& descr) {
  if (!descr.empty() && descr.substr(1) == "i1") return NpyType::int8;  // bytes have no order
  if (descr == "<f2") return NpyType::float16;
  if (descr == "<f4") return NpyType::float32;
  return std::nullopt;
}

NpyType type_from(const std::string& descr, const std::vector<NpyType>& allowed) {
  const std::optional<NpyType> type = known_type(descr);
  if (type && std::count(allowed.begin(), allowed.end(), *type) > 0) return *type;
  std::string choice = " (allowed: ";
  for (const NpyType one : allowed) choice += std::string(name_of(one)) + ", ";
  choice += "little-endian)";
  if (type) throw InputError(std::string("has dtype ") + name_of(*type) + choice);
  if (!descr.empty() && descr.substr(1, 1) == "O") {
    throw InputError("holds Python objects" + choice);
  }
  if (descr.substr(0, 1) == ">") throw InputError("is big-endian: dtype '" + descr + "'" + choice);
  std::string printable;
  for (const char c : descr.substr(0, 32)) printable += c >= ' ' && c <= '~' ? c : '?';
  throw InputError("has dtype '" + printable + "'" + choice);
}

NpyArray read(std::FILE* file, const std::vector<NpyType>& allowed) {
  const NpyHeader header = parse_npy_header(read_header(file));
  NpyArray array;
  array.type = type_from(header.descr, allowed);
  if (header.fortran_order) {
    throw InputError("is in Fortran order (allowed: C order, as numpy.ascontiguousarray makes)");
  }
  array.shape = header.shape;
  // A product with a zero in it is 0 whatever else it holds; without one, an overflow stays one.
  std::size_t bytes = element_bytes(array.type);
  const bool empty = std::count(array.shape.begin(), array.shape.end(), 0) > 0;
  for (const std::int64_t extent : array.shape) {
    const std::size_t factor = empty ? 0 : static_cast<std::size_t>(extent);
    if (__builtin_mul_overflow(bytes, factor, &bytes) || bytes > std::size_t{1} << 62U) {
      throw InputError("claims the shape " + shape_text(array.shape) + ", more than fits memory");
    }
  }
  array.bytes = read_bytes(file, bytes, "its data");
  if (std::fgetc(file) != EOF) {
    throw InputError("is longer than its shape " + shape_text(array.shape) + " of " +
                     name_of(array.type) + " says");
  }
  return array;
}

}  // namespace

const char* name_of(NpyType type) {
  switch (type) {
    case NpyType::int8:
      return "int8";
    case NpyType::float16:
      return "float16";
    case NpyType::float32:
      break;
  }
  return "float32";
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::int64_t NpyArray::size() const {
  return static_cast<std::int64_t>(bytes.size() / element_bytes(type));
}

std::vector<std::int8_t> NpyArray::int8_values() const {
  std::vector<std::int8_t> values(bytes.size());
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<float> NpyArray::float_values() const {
  std::vector<float> values(static_cast<std::size_t>(size()));
  if (type == NpyType::float32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * sizeof bits, sizeof bits);
    values[i] = static_cast<float>(Eigen::numext::bit_cast<Eigen::half>(bits));
  }
  return values;
}

NpyArray read_npy(const std::string& path, const std::vector<NpyType>& allowed) {
  try {
    const File file(std::fopen(path.c_str(), "rb"));
    if (!file) throw InputError("cannot be opened: " + system_error());
    NpyArray array = read(file.get(), allowed);
    array.path = path;
    return array;
  } catch (const InputError& error) {
    throw InputError(path + ": " + error.what());
  }
}

void write_npy(const std::string& path, const std::vector<std::int64_t>& shape,
               const std::vector<float>& values) {
  std::string header =
      "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape_text(shape) + ", }";
  const std::size_t before = sizeof kMagic + 4;  // magic, version and header length
  header.append(kHeaderAlignment - 1 - (before + header.size()) % kHeaderAlignment, ' ');
  header += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());
  std::string start(kMagic, sizeof kMagic);
  start += {'\1', '\0', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  start += header;

  File file(std::fopen(path.c_str(), "wb"));
  if (!file) throw InputError(path + ": cannot be written: " + system_error());
  const bool written =
      std::fwrite(start.data(), 1, start.size(), file.get()) == start.size() &&
      std::fwrite(values.data(), sizeof(float), values.size(), file.get()) == values.size();
  if (!written || std::fclose(file.release()) != 0) {
    const std::string reason = system_error();
    file.reset();
    throw InputError(path + ": cannot be written: " + reason);
  }
}

}  // namespace qattn::command
