// Ranks on several hosts: processes of this machine that are told that they are on different ones, so that sockets connect them.
//
// Owner: the body of a child (process_ranks.h).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "faults/process_ranks.h"

namespace tutti::faults {

/// Where ranks live: by process, in the order of the children.
struct Layout {
  std::string name;
  std::vector<int> hosts;
  std::vector<int> threads = {};  ///< ranks of each process; empty: one each

  int processes() const { return static_cast<int>(hosts.size()); }
  int ranksOf(int process) const { return threads.empty() ? 1 : threads[static_cast<size_t>(process)]; }
  int firstRankOf(int process) const;
  int ranks() const { return firstRankOf(processes()); }
};

/// From now on this process is on that host, and reached over the loopback interface. Before its first call of the library.
void playHost(int host);
/// The same, and the host has a name of its own where the user may give it one: nameOfHost(host), in every process that does the same.
void playNamedHost(int host);
std::string nameOfHost(int host);
/// The name that errors give to this host.
std::string hostName();

/// A rank as its body sees it.
struct HostRank {
  int rank;
  ncclComm_t comm;
  std::function<void(int stage)> meet;  ///< all ranks of the layout; each stage once, growing
};

/// Makes one communicator of all ranks of the layout, and runs `body` on a thread for each rank of this process (on the caller's where
/// there is one). The body ends its communicator.
using RankBody = std::function<void(const HostRank& here)>;
void runRanks(ProcessRanks::Self& self, const Layout& layout, const RankBody& body, int id = 0);

/// Whether it names the rank, alone or among others: "rank 1 ", "ranks 0, 1 of 3".
testing::AssertionResult namesRank(const std::string& text, int rank);
/// Whether all words are in the text.
testing::AssertionResult mentions(const std::string& text, const std::vector<std::string>& words);
std::string lastError();

}  // namespace tutti::faults
