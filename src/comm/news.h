// How the news that processes of a communicator tell each other about ranks is written down (courier.h carries it).
//
// Pure functions. What is read is checked against the communicator's number of ranks: damaged input gives nothing, never a fault.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/meeting.h"
#include "core/call.h"
#include "core/status.h"
#include "exec/host/work.h"
#include "transport/local/waits.h"

namespace tutti::comm {

/// A rank has left the communicator, or makes no more calls, having made so many collective ones.
struct Departure {
  Rank rank;
  uint64_t calls = 0;
};
std::vector<std::byte> encodeDeparture(const Departure& departure);
std::optional<Departure> decodeDeparture(std::span<const std::byte> bytes, int32_t ranks);

/// Why a communicator has failed.
struct Failure {
  static constexpr size_t kMostBlamed = 8;
  Status cause;
  std::vector<int32_t> blamed;  ///< up to kMostBlamed of them
  std::optional<transport::local::Verdict> verdict;
};
/// `verdict`: by encodeVerdict(); empty: none.
std::vector<std::byte> encodeFailure(const Status& cause, const std::vector<int32_t>& blamed, const std::string& verdict);
std::optional<Failure> decodeFailure(std::span<const std::byte> bytes, int32_t ranks);

/// Where a rank stands: its latest calls and, while it waits, for what.
struct Standing {
  /// What a reader may owe to be compared, and as many by which this rank may be ahead of it.
  static constexpr uint64_t kMostCalls = 2 * exec::host::Work::kMostOwed;
  Rank rank;
  uint64_t episode = 0;  ///< of the wait (waits.h, rule 2); 0 where there was none
  bool wantsAnswer = false;
  bool waits = false;
  std::vector<Call> calls;                         ///< collectives, in their order
  std::optional<transport::local::RankWait> wait;  ///< none where it `waits`: it could not be written down
  bool hasGivenUp = false;                         ///< the communicator has failed, and the wait is where it stood
};
std::vector<std::byte> encodeStanding(const Standing& standing);
/// Without those of the calls that are none.
std::optional<Standing> decodeStanding(std::span<const std::byte> bytes, int32_t ranks);

/// A rank has come to a meeting, or has ended it.
struct Coming {
  ChildKey key;
  int32_t ranks = 0;  ///< places of the meeting
  Rank place;
  Arrival arrival;
  Status ended;  ///< Ok: it has come
};
std::vector<std::byte> encodeComing(const Coming& coming);
std::optional<Coming> decodeComing(std::span<const std::byte> bytes, int32_t ranks);

}  // namespace tutti::comm
