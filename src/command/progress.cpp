#include "command/progress.hpp"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace qattn::command {

using namespace std::chrono_literals;

Progress::Progress(std::string title, int steps)
    : title_(std::move(title)),
      steps_(steps),
      terminal_(isatty(STDERR_FILENO) == 1),
      thread_([this] { watch(); }) {}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
    clear();
  }
  ended_.notify_all();
  thread_.join();
}

void Progress::step(const std::string& what) {
  const std::lock_guard lock(mutex_);
  ++at_;
  what_ = what;
}

void Progress::print(const std::string& line) {
  const std::lock_guard lock(mutex_);
  clear();
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void Progress::watch() {
  std::unique_lock lock(mutex_);
  auto next = start_ + 2s;
  while (!ended_.wait_until(lock, next, [this] { return end_; })) {
    show();
    next = Clock::now() + (terminal_ ? 1s : 10s);
  }
}

void Progress::show() {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start_);
  const std::string text = title_ + ": " + std::to_string(at_) + "/" + std::to_string(steps_) +
                           " " + what_ + " (" + std::to_string(seconds.count()) + " s)";
  clear();
  std::fputs((terminal_ ? text : text + "\n").c_str(), stderr);
  std::fflush(stderr);
  shown_ = terminal_;
}

void Progress::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

}  // namespace qattn::command
