// A root in another process, as those see it who register with it.
//
// Owner: the job, or the other root, that registers, and the reactor while something is under way. Its functions are called under the
// service's lock; what comes from the root is told to `party` under the lock too.
// 1. What is said before the connection is there is said when it is. After giveUp() it stays until the root has been told, or ten seconds;
//    where no socket is to be had, the root is told without one then.
// 2. The connection's end before Go is trouble, and says where the root was.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/alarm.h"
#include "bootstrap/dialer.h"
#include "bootstrap/ports.h"

namespace tutti::bootstrap {

class Core;
struct Lease;

/// How a root is dialled, once.
Dialer::Plan planFor(const UniqueId& root);

class Uplink : public RootPort, public std::enable_shared_from_this<Uplink> {
 public:
  /// `lease`: keeps the thread. `first`: a root that waits for this one, and is told as well where no socket is to be had.
  static std::shared_ptr<Uplink> start(const std::shared_ptr<Core>& core, const UniqueId& id, std::weak_ptr<PartyPort> party,
                                       std::shared_ptr<Lease> lease, const UniqueId* first = nullptr);

  Status enroll(const Enroll& message) override;
  Status bring(const Part& message) override;
  void ready() override;
  void giveUp(const Status& cause) override;
  std::string describe() const override;

  Uplink(std::shared_ptr<Core> core, UniqueId id, std::weak_ptr<PartyPort> party, std::shared_ptr<Lease> lease);

 private:
  void dial();
  void onDialed(Result<std::shared_ptr<Link>> outcome);
  void onClosed(const Status& cause);
  void onFrame(Kind kind, std::span<const std::byte> payload);
  void say(Kind kind, std::vector<std::byte> payload);
  void trouble(const Status& cause, void (PartyPort::*tell)(const Status&) = &PartyPort::onTrouble);
  void finish();
  std::string describeHost() const;
  Status tellWithoutSocket(const Status& cause);

  const std::shared_ptr<Core> core_;
  const UniqueId id_;
  std::vector<UniqueId> toTell_;  // without a socket
  uint64_t firstId_;              // of the communicator
  const std::weak_ptr<PartyPort> party_;
  std::shared_ptr<Lease> lease_;
  std::weak_ptr<Dialer> dialer_;  // on the reactor's thread; it refers to this
  Alarm lastWords_;               // given up before there was a connection
  std::shared_ptr<Link> link_;
  std::vector<std::pair<Kind, std::vector<std::byte>>> waiting_;  // for the connection
  std::vector<int32_t> ranks_;  // that have enrolled; none: a root that brings others'
  std::optional<Welcome> root_;
  std::string missing_;  // what the root has said last
  std::chrono::steady_clock::time_point heardAt_;
  std::shared_ptr<void> unsaid_;  // after giveUp(), until the root has been told
  bool isOver_ = false;
};

}  // namespace tutti::bootstrap
