// Numbers on which all processes of a benchmark agree, by the library's own collectives: every process ends with the same bits.
//
// Called by the thread that runs the team, in all processes with lists of equal length. Without other processes nothing happens.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/team.h"
#include "core/status.h"

namespace tutti::bench {

/// Each element becomes the largest that any process has; nothing below zero.
Status agreeOnMax(Team& team, std::vector<double>& values);
Status agreeOnMax(Team& team, std::vector<uint64_t>& values);
/// Each element becomes the sum over the processes.
Status agreeOnSum(Team& team, std::vector<uint64_t>& values);

}  // namespace tutti::bench
