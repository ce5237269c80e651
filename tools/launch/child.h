// Starts one rank: fork, set-up, exec; no shell.
//
// One thread, in a process that has no other. The child leads a process group of its own and is killed by the kernel when its parent
// dies. A program that cannot be started is an error here, not an exit code later.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "core/status.h"

namespace tutti::launch {

/// What `tutti run` has changed for itself and every rank gets back as it was.
struct Inherited {
  sigset_t signals{};
  struct sigaction onPipe {};
  struct sigaction onTerminalOutput {};
  rlimit descriptors{};
};

struct ChildSetup {
  std::vector<std::string> command;      ///< found by PATH when the first one has no slash
  std::vector<std::string> environment;  ///< NAME=VALUE
  int output = -1;                       ///< becomes standard output
  int errors = -1;                       ///< becomes standard error
  int post = -1;                         ///< kept open under its number
  int core = -1;                         ///< to run on; -1: any
  int network = -1;                      ///< the network namespace to live in; -1: the parent's
  Inherited inherited;
};

/// The new process. SystemError when the machine refuses, InvalidArgument when the program cannot be executed.
Result<pid_t> startChild(const ChildSetup& setup);

}  // namespace tutti::launch
