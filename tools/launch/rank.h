// Where this process stands in a job of several: its rank, and how the others are found. Read from the variables that launchers set.
//
// Pure functions of an environment; any thread.
// 1. The first of these that has marked the environment counts: `tutti run`, torchrun, Open MPI, MPICH (PMI), Slurm.
// 2. Variables of that launcher that are missing, no numbers, or contradict each other are an error that names them; nothing is guessed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace tutti::launch {

using Environment = std::map<std::string, std::string, std::less<>>;

/// The environment of this process, or of any list of NAME=VALUE that ends with a null pointer.
Environment readEnvironment(const char* const* list);
Environment readEnvironment();

enum class Launcher : uint8_t { None, TuttiRun, Torchrun, OpenMpi, Pmi, Slurm };

/// "tutti run", "torchrun" …
std::string_view name(Launcher launcher);

inline constexpr int kUnknown = -1;

struct Standing {
  Launcher launcher = Launcher::None;
  int rank = 0;
  int ranks = 1;
  int localRank = 0;   ///< among the ranks of this host; kUnknown when the launcher does not tell
  int localRanks = 1;  ///< likewise
  /// The same for all ranks of the job, and for no other job that runs at the same time. Not a secret.
  std::string jobKey;
  /// Names or addresses under which the host of rank 0 may be reached, best first. Empty when all ranks share a host, or when the
  /// launcher does not tell: `hostProblem` then says why.
  std::vector<std::string> hosts;
  std::string hostProblem;
  int descriptor = -1;  ///< the socket to the launcher (TUTTI_RUN_FD, PMI_FD), or -1
  int nodes = 0;        ///< network namespaces that `tutti run --nodes` made; 0 with any other launcher

  bool isLaunched() const { return launcher != Launcher::None; }
  bool isOneHost() const { return localRanks == ranks; }
};

/// Launcher::None, rank 0 of 1, where no launcher has left a mark.
Result<Standing> findStanding(const Environment& environment);

}  // namespace tutti::launch
