// The two sides of a registration, whether they are in one process or in two.
//
// Owner: each side shares the other's port. Every function is called under the service's lock.
#pragma once

#include "bootstrap/messages.h"
#include "core/status.h"

namespace tutti::bootstrap {

/// What a root tells those who have registered: processes, or other roots.
class PartyPort {
 public:
  virtual ~PartyPort() = default;
  /// Registered; said again when the root learns more of itself.
  virtual void onWelcome(const Welcome& who) = 0;
  /// To the process of rank 0 alone: everybody has come.
  virtual void onTable(const Table& table) = 0;
  /// Everybody is ready. The last that is said.
  virtual void onGo() = 0;
  /// It is over. The last that is said.
  virtual void onTrouble(const Status& cause) = 0;
  /// The connection with the root has ended: nothing was said, and nothing will be. Another root may know why.
  virtual void onLost(const Status& cause) { onTrouble(cause); }
  /// The root could not be reached: it has said nothing to anybody.
  virtual void onUnreached(const Status& cause) { onTrouble(cause); }
  /// What the root waits for.
  virtual void onMissing(const std::string& text) = 0;

 protected:
  PartyPort() = default;
  PartyPort(const PartyPort&) = default;
  PartyPort& operator=(const PartyPort&) = default;
};

/// What those who register tell their root.
class RootPort {
 public:
  virtual ~RootPort() = default;
  /// An error that is known at once; one that the root finds later comes as onTrouble().
  virtual Status enroll(const Enroll& message) = 0;
  virtual Status bring(const Part& message) = 0;
  virtual void ready() = 0;
  /// Will not go on. The last that is said.
  virtual void giveUp(const Status& cause) = 0;
  /// For describeMissing().
  virtual std::string describe() const = 0;

 protected:
  RootPort() = default;
  RootPort(const RootPort&) = default;
  RootPort& operator=(const RootPort&) = default;
};

}  // namespace tutti::bootstrap
