// What amx_test.cpp runs in processes of their own. Exit code 0: as it should be; kSkip: this
// machine cannot show it, the output says why.
#include "support/amx.hpp"

#if defined(__x86_64__) && defined(__linux__)

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <omp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "command/command.hpp"
#include "support/call.hpp"
#include "support/call_counter.hpp"
#include "support/child.hpp"
#include "verify/host_problem.hpp"

namespace qattn::test {
namespace {

using verify::HostProblem;
using verify::Result;

constexpr const char* kAmx = "cpu/amx_int8";
constexpr const char* kNext = "cpu/avx512vnni";
constexpr long kGetPermission = 0x1022;      // ARCH_GET_XCOMP_PERM
constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr long kTileData = 18;

int fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return 1;
}

int skip(const std::string& why) {
  std::printf("%s\n", why.c_str());
  return kSkip;
}

bool process_has_permission() {
  std::uint64_t components = 0;
  return syscall(SYS_arch_prctl, kGetPermission, &components) == 0 &&
         (components >> kTileData & 1U) != 0;
}

bool request_permission() { return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0; }

KernelStatus status_of_amx() {
  for (const KernelStatus& status : kernels(Device::cpu())) {
    if (status.name == kAmx) return status;
  }
  return {};
}

HostProblem problem() { return verify::random_problem({1, 300, 300, 4, 2, 64}, Mask::causal(), 7); }

Result run(const HostProblem& p, const std::string& kernel = {}, int threads = 0) {
  return verify::run(p, Device::cpu(), Precision::high, kernel, threads);
}

bool same_bits(const Result& a, const Result& b) {
  return a.out.size() == b.out.size() &&
         std::memcmp(a.out.data(), b.out.data(), a.out.size() * sizeof(float)) == 0 &&
         std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0;
}

// --- who asks, and when --------------------------------------------------------------------------

int asks_when_it_runs() {
  if (process_has_permission()) return fail("the permission is there before anyone asked");
  Call call;
  const auto explained = [&call] {
    return explain(call.device, call.q, call.k, call.v, call.out, call.options).kernel;
  };
  machine_info();
  command::info({});
  command::info({true});
  if (!status_of_amx().usable) return fail("not usable: " + status_of_amx().reason);
  if (explained() != kAmx) return fail("explain() chooses " + explained());
  workspace_bytes(call.device, call.q, call.k, call.v, call.out, call.options);
  const auto forward_call = [&call] {
    forward(call.device, call.q, call.k, call.v, call.out, call.options);
  };
  for (const char* other : {"cpu/scalar", kNext}) {
    call.options.kernel = other;
    forward_call();
  }
  call.options.kernel = {};
  call.options.threads = -1;
  try {
    forward_call();
    return fail("a negative number of threads was accepted");
  } catch (const Error&) {
  }
  call.options.threads = 0;
  const Int8Tensor q = call.q;
  call.q.shape.seq = 0;
  call.out.shape.seq = 0;
  forward_call();  // an empty problem: nothing runs
  call.q = q;
  call.out.shape.seq = q.shape.seq;
  if (process_has_permission()) return fail("asked before the kernel was to run");
  const CallWatch watch;
  forward_call();
  if (watch.ran() != kAmx) return fail("ran: " + watch.ran());
  if (!process_has_permission()) return fail("ran without the permission");
  return explained() == kAmx && status_of_amx().usable ? 0 : fail("another choice afterwards");
}
const ChildScenario asks("amx_asks_when_it_runs", asks_when_it_runs);

// Threads that exist before the first use are covered, and so are children of the process.
int covers_threads_and_children() {
  const HostProblem p = problem();
  const Result expected = run(p, "cpu/scalar");
  std::atomic<int> stage{0};
  Result of_thread;
  std::thread early([&] {
    stage = 1;
    while (stage != 2) std::this_thread::yield();
    of_thread = run(p, kAmx);
  });
  while (stage != 1) std::this_thread::yield();
  if (process_has_permission()) return fail("asked too early");
  const Result of_main = run(p, kAmx);
  stage = 2;
  early.join();
  if (!same_bits(of_main, expected)) return fail("another result on the first thread");
  if (!same_bits(of_thread, expected)) return fail("another result on the earlier thread");
  const pid_t child = fork();
  if (child == 0) _exit(same_bits(run(p, kAmx), expected) ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : fail("a forked child failed");
}
const ChildScenario covers("amx_covers_threads_and_children", covers_threads_and_children);

// --- refused -------------------------------------------------------------------------------------

// The next kernel serves, and everything says why.
int expect_served_without_amx(const std::string& reason) {
  const HostProblem p = problem();
  const Result expected = run(p, "cpu/scalar");
  const CallWatch watch;
  if (!same_bits(run(p), expected)) return fail("another result");
  if (watch.ran() != kNext) return fail("ran: " + watch.ran());
  if (process_has_permission()) return fail("the permission was given all the same");
  const KernelStatus status = status_of_amx();
  if (status.usable || status.reason.find(reason) == std::string::npos) {
    return fail("kernels() says: " + status.reason);
  }
  Call call;
  const Explanation explanation =
      explain(call.device, call.q, call.k, call.v, call.out, call.options);
  const std::string text = explanation.to_string();
  std::printf("%s", text.c_str());
  if (explanation.kernel != kNext || text.find(reason) == std::string::npos) {
    return fail("explain() does not say why");
  }
  for (const std::string& feature : machine_info().cpu_features) {
    if (feature == "amx-tile") return fail("machine_info() still lists amx-tile");
  }
  call.options.kernel = kAmx;
  try {
    forward(call.device, call.q, call.k, call.v, call.out, call.options);
    return fail("forced, it ran");
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
    if (error.code() != ErrorCode::kernel_unusable) return fail("another error code");
    if (std::string(error.what()).find(reason) == std::string::npos) return fail("no reason");
  }
  return 0;
}

// True if this thread now has an alternate signal stack too small for tiles.
bool install_small_signal_stack(stack_t* before) {
  alignas(64) static std::array<char, 2048> memory;
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  return sigaltstack(&stack, before) == 0;
}

int small_signal_stack() {
  stack_t before{};
  if (!install_small_signal_stack(&before)) {
    return skip("this Linux takes no alternate signal stack of 2048 bytes");
  }
  if (!status_of_amx().usable) return fail("refused before anyone asked");
  const std::string reason =
      "the operating system refused the permission to use AMX tile registers";
  int code = expect_served_without_amx(reason);
  // The first answer counts: no kernel changes in the middle of a process.
  before.ss_flags = SS_DISABLE;
  sigaltstack(&before, nullptr);
  if (code == 0) code = expect_served_without_amx("alternate signal stack");
  return code;
}
const ChildScenario small_stack("amx_small_signal_stack", small_signal_stack);

int small_signal_stack_and_forced() {
  stack_t before{};
  if (!install_small_signal_stack(&before)) {
    return skip("this Linux takes no alternate signal stack of 2048 bytes");
  }
  const HostProblem p = problem();
  try {
    run(p, kAmx);
    return fail("forced, it ran");
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
    return error.code() == ErrorCode::kernel_unusable ? 0 : fail("another error code");
  }
}
const ChildScenario forced_small("amx_small_signal_stack_and_forced",
                                 small_signal_stack_and_forced);

// arch_prctl answers EPERM from now on, for `code` alone or for any code.
bool forbid_arch_prctl(std::uint32_t code, bool any) {
  const auto deny = static_cast<std::uint32_t>(SECCOMP_RET_ERRNO | EPERM);
  std::array<sock_filter, 6> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, code, 0, static_cast<std::uint8_t>(any ? 0 : 1)),
      BPF_STMT(BPF_RET | BPF_K, deny),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int request_forbidden() {
  if (!forbid_arch_prctl(kRequestPermission, false)) return skip("no seccomp filters here");
  return expect_served_without_amx("Operation not permitted");
}
const ChildScenario forbidden("amx_request_forbidden", request_forbidden);

int arch_prctl_forbidden() {
  if (!forbid_arch_prctl(0, true)) return skip("no seccomp filters here");
  return expect_served_without_amx("gives nobody the permission");
}
const ChildScenario all_forbidden("amx_arch_prctl_forbidden", arch_prctl_forbidden);

// Someone else has asked already: the library need not, and could not.
int permission_of_others_counts() {
  if (!request_permission()) return fail("the test's own request was refused");
  if (!forbid_arch_prctl(kRequestPermission, false)) return skip("no seccomp filters here");
  const HostProblem p = problem();
  const CallWatch watch;
  const Result result = run(p);
  if (watch.ran() != kAmx) return fail("ran: " + watch.ran());
  return same_bits(result, run(p, "cpu/scalar")) ? 0 : fail("another result");
}
const ChildScenario others("amx_permission_of_others_counts", permission_of_others_counts);

// --- other users of the tiles --------------------------------------------------------------------

struct alignas(64) TileConfig {
  std::array<std::uint8_t, 16> head{};
  std::array<std::uint16_t, 16> row_bytes{};
  std::array<std::uint8_t, 16> rows{};
};
static_assert(sizeof(TileConfig) == 64);

// Tiles of shapes that no product of bytes wants, left configured and full.
void leave_tiles_behind() {
  static const TileConfig config = [] {
    TileConfig c;
    c.head[0] = 1;
    for (std::size_t i = 0; i < 8; ++i) {
      c.row_bytes[i] = static_cast<std::uint16_t>(4 * (i + 1));
      c.rows[i] = static_cast<std::uint8_t>(i + 1);
    }
    return c;
  }();
  alignas(64) static const std::array<std::uint8_t, 1024> bytes = [] {
    std::array<std::uint8_t, 1024> b{};
    b.fill(0xA5);
    return b;
  }();
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm0" : : "r"(bytes.data()), "r"(64L) : "memory");
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm7" : : "r"(bytes.data()), "r"(64L) : "memory");
}

bool tiles_released() {
  TileConfig config;
  std::memset(static_cast<void*>(&config), 0xFF, sizeof config);
  __asm__ volatile("sttilecfg %0" : "=m"(config));
  const TileConfig released;
  return std::memcmp(&config, &released, sizeof config) == 0;
}

void run_serially(void* /*context*/, std::int64_t tasks,
                  void (*task)(void* argument, std::int64_t index), void* argument) {
  for (std::int64_t i = 0; i < tasks; ++i) {
    leave_tiles_behind();  // the pool's tasks for others come in between
    task(argument, i);
  }
}

int others_use_tiles() {
  const HostProblem p = problem();
  const Result expected = run(p, "cpu/scalar");
  run(p, kAmx);  // the permission
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const int threads : {1, 3}) {
      std::atomic<int> held{0};
#pragma omp parallel num_threads(3)
      {
        leave_tiles_behind();
        if (!tiles_released()) ++held;
      }
      if (held != 3) return fail("the test did not configure the tiles");
      const CallWatch watch;
      if (!same_bits(run(p, kAmx, threads), expected)) return fail("another result");
      if (watch.ran() != kAmx) return fail("ran: " + watch.ran());
    }
  }
  leave_tiles_behind();
  Options options = p.options(Precision::high, kAmx);
  options.executor = {run_serially, nullptr};
  std::vector<float> out(expected.out.size());
  forward(Device::cpu(), p.q_view(), p.k_view(), p.v_view(),
          OutputTensor(out.data(), p.out_shape()), options);
  if (out != expected.out) return fail("another result on an executor");
  return tiles_released() ? 0 : fail("an executor's thread keeps a tile configuration");
}
const ChildScenario use_tiles("amx_others_use_tiles", others_use_tiles);

int tiles_are_released() {
  const HostProblem p = problem();
  run(p, kAmx, 1);
  if (!tiles_released()) return fail("the caller keeps a tile configuration");
  run(p, kAmx, 3);
  std::atomic<int> released{0};
#pragma omp parallel num_threads(3)
  if (tiles_released()) ++released;
  return released == 3 ? 0 : fail("an OpenMP thread keeps a tile configuration");
}
const ChildScenario release("amx_tiles_are_released", tiles_are_released);

}  // namespace
}  // namespace qattn::test

#endif
