// `tutti run`: starts a program as the ranks of a job on this machine, and stays until all of it has ended.
//
// Two processes: the one that was called, which only passes signals on, and the keeper (launch/keeper.h), which starts the ranks and
// looks after them.
// 1. When either of the two dies, whatever the way, all descendants of the ranks are killed.
// 2. Only if both die at the same moment may a descendant outlive them: the ranks themselves are killed by the kernel even then.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::launch {

struct RunOptions {
  int ranks = 1;
  std::vector<std::string> command;
  bool hasPrefix = true;      ///< each line of output begins with the rank
  bool isBound = false;       ///< rank i runs on the i-th allowed core, in turn
  double timeoutSeconds = 0;  ///< for the whole job; 0: none
  double graceSeconds = 5;    ///< from the signal that came to SIGTERM, and from SIGTERM to SIGKILL
  int nodes = 0;              ///< network namespaces that the ranks are spread over; 0: none, all stay in this one
};

inline constexpr int kExitTimeout = 124;
inline constexpr int kExitError = 125;  ///< `tutti run` itself failed
inline constexpr int kExitNoProgram = 127;

/// The exit code: 0, that of the first rank that failed (128 + n after signal n), 128 + n when signal n ended the job, or one of the above.
int runProgram(const RunOptions& options);

}  // namespace tutti::launch
