// Who takes part in a communicator and where: the outcome of a join, the same for all ranks of a process.
//
// Owner: shared by whoever reads it; constant. Any thread.
// 1. Processes are in the order of their first rank, hosts too, and so are the processes of a host.
// 2. What it says of ranks, processes and hosts is equal in all processes, but for `ownProcess`, `ownHost`, `shared` and `mesh`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/address.h"
#include "core/unique_fd.h"
#include "core/ids.h"

namespace tutti::bootstrap {

class Mesh;

/// What a rank tells all others; opaque here.
using Note = std::array<std::byte, 128>;

struct ProcessInfo {
  uint64_t token = 0;              ///< random, no two alike
  int32_t pid = 0;                 ///< in its own namespace
  int32_t host = 0;                ///< index into Roster::hosts
  std::vector<int32_t> ranks;      ///< ascending
  std::vector<Address> addresses;  ///< where it listens; empty when there is one process in all
};

struct HostInfo {
  std::string name;
  uint64_t identity = 0;
  std::vector<int32_t> processes;  ///< indices into Roster::processes
};

/// Ranks, processes and hosts.
struct Membership {
  int32_t ranks = 0;
  uint64_t commId = 0;             ///< the hash of the (first) unique id
  uint64_t number = 0;             ///< random, the same in all processes, of this communicator alone: also where an id serves again
  std::vector<int32_t> processOf;  ///< of each rank
  std::vector<ProcessInfo> processes;
  std::vector<HostInfo> hosts;
  int32_t ownProcess = 0;
  int32_t ownHost = 0;

  const ProcessInfo& process(int32_t index) const { return processes[static_cast<size_t>(index)]; }
  const HostInfo& host(int32_t index) const { return hosts[static_cast<size_t>(index)]; }
};

struct Roster : Membership {
  std::vector<Note> notes;  ///< of each rank
  /// The memory that makeShared() of the host's first process made, in each process of the host; invalid when the host has one process.
  UniqueFd shared;
  /// Null when there is one process in all.
  std::shared_ptr<Mesh> mesh;
};

/// "rank 5 (process 4711 on node7)", "ranks 4, 5 (process 4711 on node7)".
std::string describeProcess(const Membership& membership, int32_t process);
/// The same of several: "rank 0 (…), rank 3 (…) and 12 more processes".
std::string describeProcesses(const Membership& membership, const std::vector<int32_t>& processes);
/// "rank 3", "ranks 1, 4 and 12 more".
std::string describeRanks(const std::vector<int32_t>& ranks);

}  // namespace tutti::bootstrap
