// Says what was running when a guard page was hit.
#pragma once

#include <unistd.h>
#include <csignal>

#include <cstring>

namespace qattn::test {

/// While it lives, a segmentation fault prints `what` before it ends the program.
class SegvNote {
 public:
  explicit SegvNote(const char* what) {
    note() = what;
    struct sigaction action = {};
    action.sa_handler = print_and_die;
    sigaction(SIGSEGV, &action, &before_);
  }
  SegvNote(const SegvNote&) = delete;
  SegvNote& operator=(const SegvNote&) = delete;
  ~SegvNote() { sigaction(SIGSEGV, &before_, nullptr); }

 private:
  static const char*& note() {
    static const char* text = "";
    return text;
  }

  static void print_and_die(int /*signal*/) {
    constexpr char kPrefix[] = "read or write outside the tensors: ";
    // Nothing can be done about a failing write here.
    if (write(STDERR_FILENO, kPrefix, sizeof kPrefix - 1) < 0 ||
        write(STDERR_FILENO, note(), std::strlen(note())) < 0 ||
        write(STDERR_FILENO, "\n", 1) < 0) {
      _exit(1);
    }
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }

  struct sigaction before_ = {};
};

}  // namespace qattn::test
