#include "launch/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "core/format.h"

namespace tutti::launch {
namespace {

Process readProcess(const char* pid) {
  const Descriptor file(open(format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  char line[512];
  const ssize_t bytes = file ? read(file.get(), line, sizeof line) : -1;
  return bytes > 0 ? parseStat({line, static_cast<size_t>(bytes)}) : Process();
}

std::vector<Process> allProcesses() {
  std::vector<Process> processes;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  while (folder) {
    const dirent* entry = readdir(folder.get());
    if (!entry) break;
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    const Process process = readProcess(entry->d_name);
    if (process.pid != 0) processes.push_back(process);
  }
  return processes;
}

}  // namespace

Process parseStat(std::string_view line) {
  // "pid (name) state ppid pgrp …"; the name may hold anything, also parentheses and blanks.
  const size_t close = line.rfind(')');
  Process process;
  if (close == std::string_view::npos || line.size() < close + 4) return process;
  const char state = line[close + 2];
  const char* end = line.data() + line.size();
  pid_t pid = 0;
  (void)std::from_chars(line.data(), end, pid);
  const auto [afterParent, problem] = std::from_chars(line.data() + close + 4, end, process.parent);
  if (problem != std::errc() || afterParent == end) return process;
  (void)std::from_chars(afterParent + 1, end, process.group);
  if (state != 'Z' && state != 'X') process.pid = pid;
  return process;
}

std::vector<Process> descendantsOf(pid_t ancestor) {
  std::vector<Process> all = allProcesses();
  const auto byParent = [](const Process& a, const Process& b) { return a.parent < b.parent; };
  std::sort(all.begin(), all.end(), byParent);
  std::vector<pid_t> family = {ancestor};
  std::vector<Process> found;
  for (size_t i = 0; i < family.size(); ++i) {
    const auto [first, last] = std::equal_range(all.begin(), all.end(), Process{.parent = family[i]}, byParent);
    for (auto child = first; child != last; ++child) {
      family.push_back(child->pid);
      found.push_back(*child);
    }
  }
  return found;
}

bool killDescendants(Deadline deadline) {
  for (;;) {
    for (const Process& process : descendantsOf(getpid())) (void)kill(process.pid, SIGKILL);
    pid_t reaped = 0;
    do {
      reaped = waitpid(-1, nullptr, WNOHANG);
    } while (reaped > 0 || (reaped < 0 && errno == EINTR));
    if (reaped < 0) return true;  // no child, so no descendant
    if (deadline.isOver()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace tutti::launch
