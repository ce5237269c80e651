// What the ranks of a communicator wait for when a wait lasts, and the verdict when one gave up.
//
// Owner: the Hub. Any thread of any process; everything happens under the hub's lock, which only slow paths take: a rank publishes its
// wait after a millisecond without movement and withdraws it when it moves again.
// 1. A published wait was true at the latest inspection of its rank: nothing that it waits for had come.
// 2. An episode is one stretch of standing still in which nothing came that was waited for, not even in part; its wait is published
//    once, and `inspections` counts how often it was confirmed.
// 3. The first verdict stays; ranks that give up later add where they stood.
// 4. What is shared lies encoded in the hub's memory (waits_wire.h); each process keeps what it has read of it. A wait too long for its
//    place is not told: its rank may then do anything, as far as the others know.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/call.h"
#include "core/status.h"
#include "transport/local/remote.h"
#include "transport/local/shared_mutex.h"

namespace tutti::transport::local {

/// What one lane of a collective waits for.
struct LaneWait {
  std::vector<Rank> awaits;    ///< ranks without which it cannot take its next step
  std::vector<Rank> partners;  ///< ranks that it exchanges data with at any time
  int32_t ownLane = -1;        ///< it waits for this lane of the same rank
  bool finished = false;
  bool mayMove = false;  ///< what it needs has come meanwhile, or nobody can tell
};

/// The call that runs in a chain of a work, and where it stands.
struct ChainWait {
  Call call;
  uint64_t following = 0;  ///< calls of the chain behind it
  int32_t slice = 0;       ///< of the first unfinished lane: the slice and the step that it cannot do yet
  int32_t slices = 0;
  uint32_t step = 0;
  uint32_t steps = 0;
  std::string words;            ///< whom it waits for; may be empty
  std::vector<LaneWait> lanes;  ///< of a collective
};

/// Where a rank stands.
struct RankWait {
  std::vector<ChainWait> chains;  ///< the unfinished ones of its current work
  uint64_t begunCollectives = 0;
  std::vector<uint64_t> sent;      ///< messages to each rank that it has begun to send; empty: none at all
  std::vector<uint64_t> received;  ///< likewise those from each rank

  uint64_t begunMessages(Rank peer, bool receives) const {
    const std::vector<uint64_t>& counts = receives ? received : sent;
    return counts.empty() ? 0 : counts[static_cast<size_t>(peer.value)];
  }
};

enum class Ending : uint8_t { Mismatch, Deadline, Departed, Aborted };

/// Where a rank stood when a wait gave up.
struct RankReport {
  enum class State : uint8_t { Elsewhere, Waiting, Departed };
  State state = State::Elsewhere;  ///< Elsewhere: in no wait that had lasted
  uint64_t begunCollectives = 0;
  RankWait wait;  ///< of Waiting
};

/// A rank that a wait which gave up probably waited for in the end.
struct Suspected {
  Rank rank;
  Way way;  ///< from where the verdict was made
};

/// The outcome of a wait that gave up.
struct Verdict {
  Ending ending = Ending::Aborted;
  Status cause;
  Rank rank;                       ///< who gave up first
  int64_t waitedMs = 0;            ///< how long it had waited
  std::optional<Call> call;        ///< what it was in
  std::vector<RankCall> mismatch;  ///< calls that do not match
  std::vector<Rank> arrived;       ///< ranks that had come to `call`, and those that had not
  std::vector<Rank> missing;
  std::vector<RankReport> ranks;  ///< one for each rank
  std::vector<Suspected> suspects;
};

class Waits {
 public:
  struct Entry {
    bool waits = false;
    uint64_t episode = 0;
    uint64_t inspections = 0;
    int64_t confirmedNs = 0;  ///< steady clock of the host: the latest of them
    RankWait wait;
  };
  /// Ranks that look as if they could never go on; confirmed by later inspections of all of them.
  struct Suspect {
    Rank rank;
    uint64_t episode;
    uint64_t inspections;
  };
  /// What the lock protects. `suspects` and the pace of the search are each process's own.
  struct State {
    std::vector<Entry> ranks;
    std::vector<Suspect> suspects;
    int64_t searchPauseNs = 0;
    int64_t nextSearchNs = 0;  ///< no search before, so that searching stays cheap beside waiting
    std::optional<Verdict> verdict;
  };

  /// In `memory`, which is zero or holds the waits of these ranks already; as long as `mutex`, `patience` and it live. Nothing here waits
  /// for longer than Patience::kBrief: where a stopped process has the lock, what others know stays as it was seen last, and what is
  /// concluded here stays here.
  Waits(int32_t ranks, SharedMutex& mutex, Patience& patience, std::byte* memory);
  static uint64_t bytesFor(int32_t ranks);

  /// False: it was not.
  bool publish(Rank rank, const RankWait& wait);
  /// A wait that stays for want of the lock is confirmed by nobody any more, and the next one takes its place.
  void withdraw(Rank rank);
  /// The rank has looked again, and its wait stands as published.
  void confirm(Rank rank);

  /// Runs `body` on the state, alone.
  template <class Body>
  auto look(Body&& body) {
    const std::lock_guard own(own_);
    const SharedLock lock(mutex_, patience_, Patience::kBrief);
    if (lock) refresh();
    return std::forward<Body>(body)(state_);
  }
  /// The same; afterwards all processes have the verdict that `body` leaves.
  template <class Body>
  auto conclude(Body&& body) {
    const std::lock_guard own(own_);
    const SharedLock lock(mutex_, patience_, Patience::kBrief);
    if (lock) refresh();
    auto result = std::forward<Body>(body)(state_);
    if (lock) shareVerdict();
    return result;
  }

 private:
  struct Place;
  struct VerdictPlace;
  Place& place(size_t rank) const;
  VerdictPlace& verdictPlace() const;
  void refresh();
  void shareVerdict();

  SharedMutex& mutex_;
  Patience& patience_;
  std::mutex own_;  // what follows, where the lock is not to be had
  std::byte* const memory_;
  const uint64_t stride_;  // of a rank's place
  std::vector<uint64_t> seen_;  // versions of the places that state_ holds
  uint64_t seenVerdict_ = 0;
  State state_;
};

}  // namespace tutti::transport::local
