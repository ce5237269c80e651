// The processes that descend from this one, read from /proc: for ending all of them, however they have regrouped themselves.
//
// One thread. The caller must be the reaper of its descendants (PR_SET_CHILD_SUBREAPER): then none can leave the tree.
// 1. A snapshot: processes come and go while it is taken. Ending repeats it until there is nobody left.
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

#include "launch/descriptor.h"

namespace tutti::launch {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
};

/// The numbers of a line of /proc/PID/stat; a pid of 0 when it is none.
Process parseStat(std::string_view line);

/// All living descendants of `ancestor`, without those that are dead and only wait to be reaped.
std::vector<Process> descendantsOf(pid_t ancestor);

/// Kills and reaps all descendants. False when some are left at the deadline, which only those are that may not be killed.
bool killDescendants(Deadline deadline);

}  // namespace tutti::launch
