// One rank's way to a new communicator: a state machine that whoever is interested drives. A blocking call drives it to its end; on
// a non-blocking communicator, asking for the state does.
//
// Owner: the group that starts it, and the communicator whose state it is part of (the new one, or the parent). Any thread may call.
// 1. Nothing blocks: start() arrives at the meeting, advance() looks whether the others have.
// 2. It ends once, well or badly. The handle is written before advance() has returned Ready, and to a communicator that can be used.
// 3. giveUp() ends it for the other ranks too, also after it has ended well.
// 4. A rank that finds in arrive(), or has found before (JoinRequest::failed), that it cannot take part comes all the same and fails then,
//    so that the others hear why, whether they are all there by then or not (Arrival::hasFailed).
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/config.h"
#include "comm/encounter.h"
#include "comm/founding.h"
#include "comm/patience.h"

struct ncclComm;

namespace tutti::comm {

class Communicator;

class Setup {
 public:
  virtual ~Setup() = default;

  Status start();
  Poll advance();
  Status status() const;
  void giveUp(const Status& cause);

 protected:
  /// `ofCallsMs`: how long calls may wait for others, 0 for ever; what makes communicators has a limit of its own as well.
  Setup(const char* function, Clock& clock, int64_t ofCallsMs);

  virtual Status arrive() = 0;
  /// What ends the wait early, or nothing.
  virtual Status inspect() = 0;
  /// Everybody is there.
  virtual Status finish(Outcome outcome) = 0;
  /// What remains to be done together after finish(); Failed: `cause` says why.
  virtual Poll settle(Status& cause) = 0;
  /// Whom settle() waits for.
  virtual Rank unsettled() const = 0;
  /// The rank at a place.
  Rank nameOf(Rank at) const { return members.empty() ? at : Rank(members[static_cast<size_t>(at.value)]); }

  const char* const callName;
  std::shared_ptr<Encounter> encounter;
  Rank place;                    // there
  std::vector<int32_t> members;  // ranks of its places; empty: the same numbers

 private:
  std::string describeMissing() const;
  Status explainWait();
  Poll heed(const Outcome& outcome);
  void forgo() const;
  Poll settleAll();
  Poll fail(Status cause);

  const WaitLimit limit_;
  mutable std::mutex mutex_;
  Poll poll_ = Poll::Pending;
  bool isTaken_ = false;     // the outcome, by finish()
  bool isFinished_ = false;  // finish() has returned
  Status status_;
  Patience patience_;
};

/// A rank that is to join a communicator by a unique id.
struct JoinRequest {
  ncclComm** result = nullptr;
  std::vector<UniqueIdBytes> ids;
  int32_t ranks = 0;
  Rank rank;
  int32_t device = 0;
  Config config;
  const char* function = "";
  bool onGpu = false;  ///< `device` is a GPU
  Status failed;       ///< of a rank that has found no device: it comes to say so
};

/// Part of a communicator's ranks that are to make one of their own.
struct ChildRequest {
  enum class Kind : uint8_t { Split, Shrink };
  ncclComm** result = nullptr;
  ncclComm* parent = nullptr;
  Kind kind = Kind::Split;
  Config config;
  int32_t color = 0;              ///< Split
  int32_t key = 0;                ///< Split
  std::vector<int32_t> excluded;  ///< Shrink: sorted, without doubles, this rank not among them
  bool stopsWork = false;         ///< Shrink: whatever the parent does is ended first
};

/// `comm` is the new communicator, which lives behind `handle` and owns the set-up.
std::shared_ptr<Setup> makeJoin(Communicator& comm, ncclComm* handle, const JoinRequest& request, Clock& clock = realClock());
/// `parent` owns the set-up.
std::shared_ptr<Setup> makeChild(Communicator& parent, ChildRequest request, Clock& clock = realClock());

}  // namespace tutti::comm
