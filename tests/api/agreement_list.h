// Calls that a rank can make, by name, and lists of what ranks do: programs that do not match, and odd ones that do.
// Plain values; the calls run on the threads of their ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/harness.h"

namespace tutti::api_test {

/// One call of one rank.
struct Step {
  std::string name;  ///< as the library quotes it, without its number
  std::function<ncclResult_t(ncclComm_t, cudaStream_t)> run;
};
/// What each rank does, one list of calls a rank.
using Program = std::vector<std::vector<Step>>;

struct Case {
  std::string name;
  Program program;
  bool grouped = false;             ///< each rank makes all its calls in one group
  std::vector<std::string> quoted;  ///< what the error must mention
};

/// Memory large enough for every call, one piece a thread; what it holds does not matter.
char* inputMemory();
char* outputMemory();

Step send(int peer, size_t bytes);
Step recv(int peer, size_t bytes);
/// `collective` counts as in kCollectiveNames; rooted ones have root `root`.
Step collective(int collective, size_t count, ncclDataType_t type = ncclInt, ncclRedOp_t op = ncclSum, int root = 0);
Step allReduce(size_t count, ncclDataType_t type = ncclInt, ncclRedOp_t op = ncclSum);
Step sleepFor(int milliseconds);

inline constexpr const char* kCollectiveNames[] = {"AllReduce", "Reduce",   "Broadcast", "ReduceScatter",
                                                   "AllGather", "AlltoAll", "Gather",    "Scatter"};
inline constexpr int kCollectives = 8;

/// Every program of it must fail on all ranks with ncclInvalidUsage.
std::vector<Case> mismatches();
/// Every program of it must succeed on all ranks.
std::vector<Case> legalOrders();

}  // namespace tutti::api_test
