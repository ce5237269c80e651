// Who passes what on to whom: a binomial tree of the hosts' first processes, and one within each host.
//
// No state; pure functions of their arguments; any thread.
// 1. Process 0 is the root; every other process has one parent. A process has at most log2(hosts) + log2(processes of its host) children.
// 2. Between hosts only their first processes speak.
#pragma once

#include <cstdint>
#include <vector>

#include "bootstrap/roster.h"

namespace tutti::bootstrap {

/// In the binomial tree of 0 … : `place` without its lowest one. -1 for 0.
constexpr int32_t binomialParent(int32_t place) { return place == 0 ? -1 : place & (place - 1); }
/// The one with the most descendants first.
std::vector<int32_t> binomialChildren(int32_t place, int32_t size);

/// -1 for process 0.
int32_t treeParent(const Membership& all, int32_t process);
std::vector<int32_t> treeChildren(const Membership& all, int32_t process);
/// Where a process stands among those of its host.
int32_t placeInHost(const Membership& all, int32_t process);

}  // namespace tutti::bootstrap
