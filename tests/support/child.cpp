#include "support/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>

namespace qattn::test {
namespace {

constexpr const char* kVariable = "QATTN_TEST_CHILD";
const ChildScenario* first_scenario = nullptr;

// Replaces or adds "NAME=value" in a copy of this process's environment.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  for (const auto& [name, value] : changes) {
    const std::string prefix = name + "=";
    std::erase_if(all, [&](const std::string& entry) { return entry.rfind(prefix, 0) == 0; });
    all.push_back(prefix + value);
  }
  return all;
}

// Reads the pipe until the child closes it or time is up.
bool read_until(int pipe, std::chrono::steady_clock::time_point deadline, std::string* output) {
  std::array<char, 4096> chunk{};
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd waiting = {pipe, POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t count = read(pipe, chunk.data(), chunk.size());
    if (count == 0) return true;
    if (count > 0) output->append(chunk.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

ChildScenario::ChildScenario(const char* name_, int (*run_)())
    : name(name_), run(run_), next(first_scenario) {
  first_scenario = this;
}

ChildResult run_child(const std::string& scenario,
                      const std::vector<std::pair<std::string, std::string>>& environment,
                      int seconds) {
  auto changes = environment;
  changes.emplace_back(kVariable, scenario);
  const std::vector<std::string> variables = environment_with(changes);
  std::vector<char*> pointers;
  pointers.reserve(variables.size() + 1);
  for (const std::string& variable : variables) {
    pointers.push_back(const_cast<char*>(variable.c_str()));
  }
  pointers.push_back(nullptr);
  std::array<char*, 2> arguments = {const_cast<char*>("qattn_tests"), nullptr};

  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category());
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);  // a child that forks is ended together with its own children
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execve("/proc/self/exe", arguments.data(), pointers.data());
    _exit(127);
  }
  close(ends[1]);
  ChildResult result;
  result.timed_out = !read_until(
      ends[0], std::chrono::steady_clock::now() + std::chrono::seconds(seconds), &result.output);
  close(ends[0]);
  if (result.timed_out) kill(-child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

const char* requested_child() { return std::getenv(kVariable); }

int run_scenario(const char* scenario) {
  for (const ChildScenario* s = first_scenario; s != nullptr; s = s->next) {
    if (std::strcmp(s->name, scenario) != 0) continue;
    try {
      return s->run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", scenario, error.what());
      return 99;
    }
  }
  std::fprintf(stderr, "no scenario is called %s\n", scenario);
  return 98;
}

}  // namespace qattn::test
