#include "launch/run.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "launch/keeper.h"
#include "launch/processes.h"

namespace tutti::launch {
namespace {

int complain(const char* what) {
  std::fprintf(stderr, "tutti run: %s: %s\n", what, std::strerror(errno));
  return kExitError;
}

/// The numbers 0, 1 and 2 must be taken, so that no pipe gets them.
void openStandardStreams() {
  for (int opened = open("/dev/null", O_RDWR); opened >= 0; opened = open("/dev/null", O_RDWR)) {
    if (opened <= STDERR_FILENO) continue;
    (void)close(opened);
    return;
  }
}

[[noreturn]] void becomeKeeper(const RunOptions& options, Descriptor caller, const Inherited& inherited) {
  // A group of its own, so that Ctrl-C reaches it once, through its caller.
  (void)setpgid(0, 0);
  const int code = Keeper(options, std::move(caller), inherited).run();
  std::_Exit(code);
}

/// Passes signals on until the keeper has ended; its wait status.
int passSignals(pid_t keeper, const sigset_t& taken) {
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(keeper, &status, WNOHANG);
    if (ended == keeper) return status;
    siginfo_t info;
    const int signal = sigwaitinfo(&taken, &info);
    if (signal > 0 && signal != SIGCHLD) (void)kill(keeper, signal);
  }
}

}  // namespace

int runProgram(const RunOptions& options) {
  openStandardStreams();
  // The keeper and this process watch each other: the pipe closes when this one dies, and orphans of a dead keeper come here.
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return complain("pipe");
  Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return complain("prctl");
  Inherited inherited;
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&taken, signal);
  if (sigprocmask(SIG_BLOCK, &taken, &inherited.signals) != 0) return complain("sigprocmask");
  if (getrlimit(RLIMIT_NOFILE, &inherited.descriptors) != 0) return complain("getrlimit");
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  if (sigaction(SIGPIPE, &ignore, &inherited.onPipe) != 0) return complain("sigaction");
  if (sigaction(SIGTTOU, &ignore, &inherited.onTerminalOutput) != 0) return complain("sigaction");
  (void)::signal(SIGCHLD, SIG_DFL);  // a caller that ignores it would have the kernel reap the ranks

  const pid_t keeper = fork();
  if (keeper < 0) return complain("fork");
  if (keeper == 0) {
    writing.reset();
    becomeKeeper(options, std::move(reading), inherited);
  }
  (void)setpgid(keeper, keeper);
  reading.reset();
  const int status = passSignals(keeper, taken);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::fprintf(stderr, "tutti run: the process that looks after the ranks was killed by signal %d; killing the ranks\n", WTERMSIG(status));
  (void)killDescendants(Deadline::after(kKillTime));
  return 128 + WTERMSIG(status);
}

}  // namespace tutti::launch
