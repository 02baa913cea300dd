#include "cpu/tile_permission.hpp"

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <system_error>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace qattn::cpu {
namespace {

#if defined(__x86_64__) && defined(__linux__)

constexpr long kGetSupported = 0x1021;       // ARCH_GET_XCOMP_SUPP
constexpr long kGetPermission = 0x1022;      // ARCH_GET_XCOMP_PERM
constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr long kTileData = 18;               // XFEATURE_XTILEDATA

std::uint64_t read_state(long code) noexcept {
  std::uint64_t components = 0;
  return syscall(SYS_arch_prctl, code, &components) == 0 ? components : 0;
}

// 0, or the error number.
int request() noexcept {
  if ((read_state(kGetPermission) >> kTileData & 1U) != 0) return 0;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
}

#else

std::uint64_t read_state(long /*code*/) noexcept { return 0; }
constexpr long kGetSupported = 0;
int request() noexcept { return ENOSYS; }

#endif

std::string describe(int error) {
  if (error == 0) return {};
  std::string text = "the operating system refused the permission to use AMX tile registers ";
  text += "(arch_prctl: " + std::generic_category().message(error);
  if (error == ENOSPC) text += ": a thread's alternate signal stack is too small for them";
  return text + ")";
}

// The first answer, as the reason for a refusal; empty: granted, null: not asked yet. No lock: a
// child forked while another thread asks must not find one held. Leaked on purpose: see config().
std::atomic<const std::string*> answer{nullptr};

TilePermission to_permission(const std::string* reason) noexcept {
  if (reason == nullptr || reason->empty()) return {};
  return {true, *reason};
}

}  // namespace

TilePermission tile_permission() noexcept { return to_permission(answer.load()); }

TilePermission request_tile_permission() {
  const std::string* known = answer.load();
  if (known == nullptr) {
    auto mine = std::make_unique<const std::string>(describe(request()));
    if (answer.compare_exchange_strong(known, mine.get())) known = mine.release();
  }
  return to_permission(known);
}

std::uint64_t supported_state() noexcept { return read_state(kGetSupported); }

}  // namespace qattn::cpu
