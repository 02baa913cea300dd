// Tells a person that long work goes on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace qattn::command {

/// Reports on stderr once work has taken two seconds: a line rewritten every second on a terminal,
/// else a new line every ten seconds. The destructor removes the line and ends the reports.
class Progress {
 public:
  /// `steps`: how many there will be.
  Progress(std::string title, int steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Says what is being done now; the step before it, if any, is done.
  void step(const std::string& what);
  /// Writes a line to stdout that does not mix with the report.
  void print(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  void watch();
  void show();
  void clear();

  const std::string title_;
  const int steps_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;  // guards all below
  std::condition_variable ended_;
  std::string what_;
  int at_ = 0;
  bool shown_ = false;  // a line stands on the terminal
  bool end_ = false;
  std::thread thread_;
};

}  // namespace qattn::command
