// The root of a unique id: collects the ranks, sends the table on its way, and tells everybody when all are ready, or that it is over.
//
// Owner: the service, until it is over. Every function is called under the service's lock.
// 1. It is over once: with Go to all parties, or with the first trouble, for all of them. The id has served then, and who comes later
//    hears of that trouble.
// 2. With several ids each root collects its block and brings it to the first root, which alone makes the table; or brings it its trouble.
// 3. A party (a process or another root) that goes before Go ends it for everybody, with its ranks named.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/alarm.h"
#include "bootstrap/gathering.h"
#include "bootstrap/link.h"
#include "bootstrap/ports.h"

namespace tutti::bootstrap {

class Core;
struct Lease;

class Root : public PartyPort, public std::enable_shared_from_this<Root> {
 public:
  Root(std::shared_ptr<Core> core, UniqueId id, std::shared_ptr<Lease> lease);

  const UniqueId& id() const { return id_; }
  bool isOver() const { return isOver_; }

  /// Opens its door when it can: whoever listens there now may be about to leave.
  void listenLater(int tries);
  Status enroll(const std::shared_ptr<PartyPort>& party, const Enroll& message);
  Status bring(const std::shared_ptr<PartyPort>& party, const Part& message);
  void ready(const PartyPort& party);
  /// Says why in its own words.
  void giveUp(const PartyPort& party, const Status& cause);
  /// The connection has ended.
  void lose(const PartyPort& party, const Status& cause);
  void fail(const Status& cause, const PartyPort* except = nullptr);
  /// Those who wait at its door for a descriptor hear it as well.
  void failForLack(const Status& cause);
  /// Ranks that have not come; once all have, those whose processes are not ready.
  std::string describeMissing() const;

  /// What the first root says to this one.
  void onTable(const Table& table) override;
  void onWelcome(const Welcome& who) override;
  void onGo() override;
  void onTrouble(const Status& cause) override;
  void onMissing(const std::string& text) override;

 private:
  struct Party {
    std::shared_ptr<PartyPort> port;
    std::vector<int32_t> ranks;
    bool isReady = false;
  };
  Party& partyOf(const std::shared_ptr<PartyPort>& port);
  Welcome welcome() const;
  Status refuse(const std::shared_ptr<PartyPort>& party, Status why);
  Status complete(const Enroll* last);
  void distribute();
  std::shared_ptr<RootPort> wayUp();
  void bringUp();
  void startTimer();
  void expire();
  void reportLater(std::chrono::milliseconds after);
  std::string describe(const Party& party) const;
  std::string describeUnready() const;
  std::map<const PartyPort*, Party> finish(const Status& why);

  const std::shared_ptr<Core> core_;
  const UniqueId id_;
  std::shared_ptr<Lease> lease_;  // null: nobody can come from outside
  Gathering gathering_;
  std::map<const PartyPort*, Party> parties_;  // none leaves before it is over
  size_t unready_ = 0;                         // of parties_
  UniqueIdBytes firstId_{};                    // where a root of several brings its part
  std::shared_ptr<RootPort> first_;            // the first root, seen from another
  int64_t setUpMs_ = 30'000;
  int32_t ownRank_ = -1;  // one of the root's own process
  Alarm limit_;
  Alarm door_;
  Alarm report_;
  bool reportsSoon_ = false;
  std::chrono::milliseconds reportAfter_{200};
  bool isComplete_ = false;
  bool isOver_ = false;
  bool isLacking_ = false;  // descriptors
};

/// What those hear who come when it is over; `why`: what ended it, or nothing if it ended well.
Status alreadyServed(const Status& why);
/// The root's port for those who register in the root's own process.
std::shared_ptr<RootPort> makeLocalPort(std::shared_ptr<Root> root, const std::shared_ptr<PartyPort>& party);
/// Serves somebody who has connected to the root of the id whose hash is `topic`; null: it is over.
void serveParty(std::shared_ptr<Core> core, uint64_t topic, const std::shared_ptr<Root>& root, const std::shared_ptr<Link>& link);

}  // namespace tutti::bootstrap
