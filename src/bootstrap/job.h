// A process's part in the making of one communicator: its ranks, their roots, and the steps from the table to the roster.
//
// Owner: the service until it is over, its participants as long as they look at it. Functions are called under the service's lock
// unless they say otherwise.
// 1. It is over once, with the roster or an error; poll() then says so to every participant, from any thread, without the service's lock.
//    An error is told when other processes have been told of it, or after kForLastWords: the program may end then.
// 2. Steps with a table of several processes: make or fetch the shared memory, hand the table to the children in the tree, say ready to
//    every root, wait for Go. A step that fails ends it for everybody.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/alarm.h"
#include "bootstrap/link.h"
#include "bootstrap/listener.h"
#include "bootstrap/ports.h"
#include "bootstrap/service.h"

namespace tutti::bootstrap {

class Core;
struct Lease;
class MeshCore;

class Job : public PartyPort, public std::enable_shared_from_this<Job> {
 public:
  using Outcome = Result<std::shared_ptr<const Roster>>;

  /// `lease` is null where all roots are here and nobody can come from outside.
  Job(std::shared_ptr<Core> core, std::vector<UniqueId> ids, std::vector<UniqueIdBytes> raw, int32_t ranks, std::shared_ptr<Lease> lease);

  const UniqueId& firstId() const { return ids_.front(); }
  /// Whether `raw` are the ids of this job.
  bool isOf(std::span<const UniqueIdBytes> raw) const;
  Status enroll(Rank rank, int32_t ranks, const Note& note, MakeShared makeShared, Limits limits);
  std::string describeMissing() const;
  /// One of its ranks will not take part.
  void end(Rank rank, const Status& cause);
  /// Ends it from within.
  void fail(const Status& cause);

  // Without the lock.
  std::optional<Outcome> poll() const;
  /// Why it is over, also before poll() says so; Ok: it is not, or has ended well.
  Status failure() const;
  bool hasUnsaid() const { return unsaid_->load(std::memory_order_acquire) > 0; }  // pairs with Uplink::giveUp()
  bool isOver() const { return isOver_.load(std::memory_order_acquire); }
  /// A connection from the parent in the tree, which will bring the table.
  void awaitTable(const std::shared_ptr<Link>& link);
  const std::shared_ptr<Core>& core() const { return core_; }

  void onWelcome(const Welcome&) override {}
  void onTable(const Table& table) override;
  void onGo() override;
  void onTrouble(const Status& cause) override;
  /// With several roots, one of the others has a moment to say what has become of this one: it may know the ranks there.
  void onLost(const Status& cause) override;
  void onUnreached(const Status& cause) override;
  void onMissing(const std::string&) override {}

 private:
  void acceptTable(const Table& table, const std::shared_ptr<Link>& fromParent);
  void sayReady();
  void conclude(Outcome outcome);
  // On the thread, without the lock.
  void spread(const Table& table);
  void shareMemory(const Table& table);
  void onShared(Result<UniqueFd> fd);
  void failUnlocked(const Status& cause, bool isFinal = false);

  const std::shared_ptr<Core> core_;
  const std::vector<UniqueId> ids_;
  const std::vector<UniqueIdBytes> raw_;
  const int32_t ranks_;
  const std::shared_ptr<std::atomic<int>> unsaid_;
  std::shared_ptr<Lease> lease_;
  std::optional<Member> self_;
  std::set<int32_t> ownRanks_;
  std::map<int32_t, std::shared_ptr<RootPort>> ports_;  // by the number of the id
  MakeShared makeShared_;
  std::shared_ptr<Roster> roster_;  // while it is made
  std::shared_ptr<MeshCore> mesh_;
  UniqueFd shared_;
  std::shared_ptr<Listener> offer_;
  Alarm failure_;  // one that is about to be told
  std::chrono::milliseconds setUp_{30'000};

  std::atomic<bool> isOver_{false};  // set after outcome_ (release); pairs with isOver() (acquire)
  mutable std::mutex outcomeMutex_;
  std::optional<Outcome> outcome_;
  std::chrono::steady_clock::time_point overSince_;
};

/// The roster without its shared memory and mesh; `ownToken` is one of the table's members. InvalidUsage when it is none of them.
Result<std::shared_ptr<Roster>> makeRoster(const Table& table, uint64_t commId, uint64_t ownToken);

}  // namespace tutti::bootstrap
