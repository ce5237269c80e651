// Where ranks of one process that were given the same unique id find each other.
//
// Owner: the process (table); the meeting itself is shared by the ranks that wait in it. Any thread may call.
// 1. An id that nobody uses costs nothing. A meeting ends when all ranks are there, or with the first error, for all of them.
// 2. Arriving never blocks; waiting does. A thread that brings several ranks arrives with all before it waits.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/local/hub.h"

namespace tutti::comm {

/// The content of an ncclUniqueId.
using UniqueIdBytes = std::array<unsigned char, 128>;

class Meeting {
 public:
  explicit Meeting(int32_t ranks) : ranks_(ranks), present_(static_cast<size_t>(ranks), false) {}

  /// Blocks until every rank is there, and returns what they share; the first error otherwise.
  Result<std::shared_ptr<transport::local::Hub>> wait();
  /// Gives up: everybody who waits gets `outcome`, unless all ranks are there.
  void end(Status outcome);

 private:
  friend class Rendezvous;
  Status join(int32_t ranks, Rank rank);


  const int32_t ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> present_;
  int32_t arrived_ = 0;
  std::shared_ptr<transport::local::Hub> hub_;  // set when all are there
  Status error_;
};

class Rendezvous {
 public:
  /// A new id, good for one communicator.
  Result<UniqueIdBytes> makeId();

  /// Announces `rank` of `ranks`. InvalidArgument when the id is none of ours, InvalidUsage when it comes from another process,
  /// when the rank is there already, or when the ranks disagree about how many they are.
  Result<std::shared_ptr<Meeting>> arrive(const UniqueIdBytes& id, int32_t ranks, Rank rank);

  /// A number that stands for the id in logs.
  static uint64_t hashOf(const UniqueIdBytes& id);

 private:
  std::mutex mutex_;
  std::map<UniqueIdBytes, std::shared_ptr<Meeting>> meetings_;  // those that still wait for somebody
};

}  // namespace tutti::comm
