// The conformance matrix: its axes, and how a number becomes a case. Nothing is listed by hand.
// Plain values, pure functions.
//
// 1. caseAt(kind, algorithm, ranks, i) for i in [0, caseCount) meets every combination of the axes exactly once.
// 2. A sample is a Latin hypercube: each value of each axis comes up equally often, to within one.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "algo/traits.h"
#include "core/types.h"

namespace tutti::conformance {

/// What is called. Exchange is a ring of sends and receives in one group.
enum class Kind : uint8_t { AllReduce, Reduce, Broadcast, Bcast, ReduceScatter, AllGather, AlltoAll, Gather, Scatter, Exchange };
inline constexpr int kNumKinds = 10;

/// Operations as users pass them: 0 … 4 are ncclSum … ncclAvg; 5 and 6 the pre-multiplied sum with its scalar on the host and on
/// the device.
inline constexpr int kNumOperations = 7;
inline constexpr int kAvg = 4;
inline constexpr int kPreMulHost = 5;
inline constexpr int kPreMulDevice = 6;

/// Ordinary: finite values of small magnitude, whose result a reference in higher precision bounds. Wild: random bytes, with
/// NaNs of every payload, infinities and subnormals; only the bitwise contract speaks about these.
enum class Data : uint8_t { Ordinary, Wild };

struct Case {
  Kind kind = Kind::AllReduce;
  std::string_view algorithm;  ///< what tuttiExplain must answer
  int ranks = 1;
  DataType type = DataType::F32;
  int operation = 0;
  uint64_t count = 0;  ///< as the call takes it
  int root = 0;
  bool inPlace = false;
  bool nullUnused = false;  ///< pass NULL where a rank's buffer is not used
  int sendOffset = 0;       ///< elements after a 64-byte boundary
  int recvOffset = 0;
  Data data = Data::Ordinary;
  uint64_t seed = 0;
};

/// A kind with an algorithm that can be forced for it.
struct Column {
  Kind kind;
  std::string_view algorithm;
  std::string force;  ///< TUTTI_ALGO
  algo::Traits traits;

  /// Whether the algorithm runs on so many ranks, as they are divided into nodes.
  bool runsOn(int ranks) const;
};
const std::vector<Column>& columns();

/// What the library calls the kind.
Collective collectiveOf(Kind kind);
/// TUTTI_NODE_RANKS of this process.
int32_t nodeRanks();

uint64_t caseCount(const Column& column, int ranks);
Case caseAt(const Column& column, int ranks, uint64_t index);
/// `size` cases by seed.
std::vector<Case> sampleCases(const Column& column, int ranks, int size, uint64_t seed);

std::string describe(const Case& c);
std::string_view kindName(Kind kind);
/// Its name in tuttiExplain.
const char* explainName(Kind kind);

bool reduces(Kind kind);
bool hasRoot(Kind kind);
bool hasInPlace(Kind kind);
/// Elements of the buffers of a rank that uses them: `count` times 1 or the rank count.
uint64_t sendElems(const Case& c);
uint64_t recvElems(const Case& c);

/// More than all slots of a pipe hold at once, under the TUTTI_SLOTS and TUTTI_SLICE_BYTES of this process, in bytes.
uint64_t pipeCapacityBytes();

}  // namespace tutti::conformance
