// Where ranks of one process that make a communicator together find each other: by a unique id, or as children of one parent.
//
// Owner: the process (Rendezvous) or the ranks of the parent (Nursery); a meeting is shared by the ranks that wait in it. Any thread.
// 1. An id that nobody uses costs nothing. A meeting ends when all ranks are there, or with the first error, for all of them; who
//    comes with the same unique id afterwards is refused, as long as it is among the kRemembered latest.
// 2. Nothing here blocks: who waits asks again (comm/setup.h).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/local/hub.h"

namespace tutti::comm {

/// The content of an ncclUniqueId.
using UniqueIdBytes = std::array<unsigned char, 128>;

/// The colour of a rank that comes to a meeting without becoming a member of anything.
inline constexpr int32_t kNoColor = -1;

/// What a rank brings: ranks of one colour make a communicator, in the order of their keys, then of their ranks.
struct Arrival {
  int32_t color = 0;
  int32_t key = 0;
  int32_t minCtas = 1;
  int32_t maxCtas = 64;
  int32_t cores = 1;  ///< that the rank's thread may use: part of what an algorithm is chosen by
};

class Nursery;

class Meeting {
 public:
  /// What a rank gets: its place in the new communicator, what it shares with the others of its colour, and what they agreed on:
  /// enough channels for everybody, not more than anybody allows, and the most cores that one of them may use. Without a hub for a rank of
  /// no colour.
  struct Outcome {
    std::shared_ptr<transport::local::Hub> hub;
    std::shared_ptr<Nursery> nursery;
    Rank rank;
    int32_t ranks = 0;
    int32_t minCtas = 1;
    int32_t maxCtas = 64;
    int32_t cores = 1;
  };

  explicit Meeting(int32_t ranks) : ranks_(ranks) {}

  /// Nothing while ranks are missing; afterwards what `rank` gets, or the first error.
  std::optional<Result<Outcome>> poll(Rank rank) const;
  /// `rank` will not take part: everybody else gets `cause`, and if all are there already, the calls of its colour will.
  void end(Rank rank, Status cause);
  /// "ranks 1, 4 of 8": who has not come yet; `names` are the ranks of the places, if they are others.
  std::string describeMissing(std::span<const int32_t> names = {}) const;
  bool has(Rank rank) const;
  bool isWaiting() const { return !isOver(); }

 private:
  friend class Rendezvous;
  friend class Nursery;
  Status join(int32_t ranks, Rank rank, const Arrival& arrival);
  bool isOver() const;
  bool isComplete() const;
  void formGroups();

  const int32_t ranks_;
  mutable std::mutex mutex_;
  std::map<int32_t, Arrival> arrivals_;  // no larger than those who came, however many they say to be
  std::vector<Outcome> outcomes_;  // one for each rank when all are there
  Status error_;
};

/// Which child of a communicator: what its members know without having spoken.
struct ChildKey {
  bool mayBeBroken = false;      ///< made of a parent that was revoked, or whose work was ended for it: counted from there
  std::vector<int32_t> members;  ///< the survivors of a shrink; empty for a split
  uint64_t number = 0;           ///< how many of its kind came before
  friend auto operator<=>(const ChildKey&, const ChildKey&) = default;
};

/// The meetings of a communicator's children. One that failed is remembered: a rank that comes later is told, not left waiting.
class Nursery {
 public:
  Result<std::shared_ptr<Meeting>> arrive(const ChildKey& key, int32_t ranks, Rank rank, const Arrival& arrival);
  /// Those that are not complete.
  std::vector<std::pair<ChildKey, std::shared_ptr<Meeting>>> open() const;

 private:
  mutable std::mutex mutex_;
  std::map<ChildKey, std::shared_ptr<Meeting>> meetings_;
};

class Rendezvous {
 public:
  /// A new id, good for one communicator.
  Result<UniqueIdBytes> makeId();

  /// Announces `rank` of `ranks`. InvalidArgument when the id is none of ours or the rank disagrees with others about how many they
  /// are, InvalidUsage when the id comes from another process or the rank is there already.
  Result<std::shared_ptr<Meeting>> arrive(const UniqueIdBytes& id, int32_t ranks, Rank rank, const Arrival& arrival);
  /// Takes a meeting that has ended out of the table.
  void forget(const UniqueIdBytes& id, const std::shared_ptr<Meeting>& meeting);

  /// A number that stands for the id in logs.
  static uint64_t hashOf(const UniqueIdBytes& id);

 private:
  static constexpr size_t kRemembered = 4096;
  void remember(const UniqueIdBytes& id);

  mutable std::mutex mutex_;
  std::map<UniqueIdBytes, std::shared_ptr<Meeting>> meetings_;  // those that still wait for somebody
  std::set<UniqueIdBytes> ended_;
  std::deque<UniqueIdBytes> endedOrder_;  // oldest first
};

/// A number that no other process has drawn, for the ids of this one; 0 when the system gives none.
uint64_t drawToken();

}  // namespace tutti::comm
