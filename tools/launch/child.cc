#include "launch/child.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launch/descriptor.h"

namespace tutti::launch {
namespace {

enum class Stage : int { Parent, Network, Core, Descriptors, Signals, Execute };

constexpr const char* kStages[] = {"follow its parent",   "enter its network namespace", "be bound to its core",
                                   "get its descriptors", "get its signals back",        "start"};

/// What the child tells its parent when it gets no further.
struct Report {
  Stage stage = Stage::Execute;
  int problem = 0;
};

/// A descriptor that the program shall have: `target` itself is left alone when it is the source already.
bool place(int source, int target) { return source == target ? fcntl(source, F_SETFD, 0) == 0 : dup2(source, target) == target; }

bool bindTo(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core), &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

bool placeDescriptors(const ChildSetup& setup) {
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return input >= 0 && place(input, STDIN_FILENO) && place(setup.output, STDOUT_FILENO) && place(setup.errors, STDERR_FILENO) &&
         (setup.post < 0 || fcntl(setup.post, F_SETFD, 0) == 0) && setrlimit(RLIMIT_NOFILE, &setup.inherited.descriptors) == 0;
}

bool restoreSignals(const Inherited& inherited) {
  return sigaction(SIGPIPE, &inherited.onPipe, nullptr) == 0 && sigaction(SIGTTOU, &inherited.onTerminalOutput, nullptr) == 0 &&
         sigprocmask(SIG_SETMASK, &inherited.signals, nullptr) == 0;
}

/// In the child; returns only when something failed.
Stage become(const ChildSetup& setup, pid_t parent, char* const* arguments, char* const* environment) {
  (void)setpgid(0, 0);
  // The parent may have died before the request was made.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) return Stage::Parent;
  if (setup.network >= 0 && setns(setup.network, CLONE_NEWNET) != 0) return Stage::Network;
  if (setup.core >= 0 && !bindTo(setup.core)) return Stage::Core;
  if (!placeDescriptors(setup)) return Stage::Descriptors;
  if (!restoreSignals(setup.inherited)) return Stage::Signals;
  (void)execvpe(arguments[0], arguments, environment);
  return Stage::Execute;
}

std::vector<char*> pointersTo(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<pid_t> startChild(const ChildSetup& setup) {
  const std::vector<char*> arguments = pointersTo(setup.command);
  const std::vector<char*> environment = pointersTo(setup.environment);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(Code::SystemError, "no pipe for a rank: {}", std::strerror(errno));
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return fail(Code::SystemError, "no further process: {} (ulimit -u)", std::strerror(errno));
  if (pid == 0) {
    Report report;
    report.stage = become(setup, parent, arguments.data(), environment.data());
    report.problem = errno;
    (void)!write(writing.get(), &report, sizeof report);
    _exit(127);
  }
  (void)setpgid(pid, pid);  // whichever of the two comes first
  writing.reset();
  Report report;
  ssize_t bytes = 0;
  do {
    bytes = read(reading.get(), &report, sizeof report);
  } while (bytes < 0 && errno == EINTR);
  if (bytes != static_cast<ssize_t>(sizeof report)) return pid;  // the pipe closed as the program began
  (void)waitpid(pid, nullptr, 0);
  const char* what = kStages[static_cast<size_t>(report.stage)];
  const Code code = report.stage == Stage::Execute ? Code::InvalidArgument : Code::SystemError;
  return fail(code, "'{}' cannot {}: {}", setup.command[0], what, std::strerror(report.problem));
}

}  // namespace tutti::launch
