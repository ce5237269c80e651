// Where ranks of one process that were given the same unique id find each other.
//
// Owner: the process (table); the meeting itself is shared by the ranks that wait in it. Any thread may call.
// 1. An id that nobody uses costs nothing. A meeting ends when all ranks are there, or with the first error, for all of them; who
//    comes with the same id afterwards is refused, as long as it is among the kRemembered latest.
// 2. Arriving never blocks; waiting does. A thread that brings several ranks arrives with all before it waits.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "transport/local/hub.h"

namespace tutti::comm {

/// The content of an ncclUniqueId.
using UniqueIdBytes = std::array<unsigned char, 128>;

class Meeting {
 public:
  /// What the ranks of a communicator share, and what they agreed on: enough channels for everybody, not more than anybody allows.
  struct Outcome {
    std::shared_ptr<transport::local::Hub> hub;
    int32_t minCtas = 1;
    int32_t maxCtas = 64;
  };

  explicit Meeting(int32_t ranks) : ranks_(ranks), present_(static_cast<size_t>(ranks), false) {}

  /// Blocks until every rank is there, and returns what they share; the first error otherwise.
  Result<Outcome> wait();
  /// One of the ranks will not take part: everybody who waits gets `cause`, and if all are there already, their calls will.
  void end(Status cause);

 private:
  friend class Rendezvous;
  Status join(int32_t ranks, Rank rank, int32_t minCtas, int32_t maxCtas);


  const int32_t ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> present_;
  int32_t arrived_ = 0;
  Outcome outcome_;  // with a hub when all are there
  Status error_;
};

class Rendezvous {
 public:
  /// A new id, good for one communicator.
  Result<UniqueIdBytes> makeId();

  /// Announces `rank` of `ranks`, and the channels it asks for. InvalidArgument when the id is none of ours or the rank disagrees
  /// with others about how many they are, InvalidUsage when the id comes from another process or the rank is there already.
  Result<std::shared_ptr<Meeting>> arrive(const UniqueIdBytes& id, int32_t ranks, Rank rank, int32_t minCtas, int32_t maxCtas);
  /// Takes a meeting that has ended out of the table.
  void forget(const UniqueIdBytes& id, const std::shared_ptr<Meeting>& meeting);

  /// A number that stands for the id in logs.
  static uint64_t hashOf(const UniqueIdBytes& id);

 private:
  std::mutex mutex_;
  static constexpr size_t kRemembered = 4096;
  void remember(const UniqueIdBytes& id);

  std::map<UniqueIdBytes, std::shared_ptr<Meeting>> meetings_;  // those that still wait for somebody
  std::set<UniqueIdBytes> ended_;
  std::deque<UniqueIdBytes> endedOrder_;  // oldest first
};

}  // namespace tutti::comm
