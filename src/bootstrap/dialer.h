// Reaches a process that may have several addresses, of which any or none may work, now or later.
//
// Owner: whoever waits for it, and the reactor while it is under way. Only on the reactor's thread.
// 1. All addresses of a round are tried, a new one each kStagger while the earlier ones have not answered; the first that proves itself
//    wins, the others are dropped. A stranger at one of them costs nothing but that address.
// 2. A failed round is followed by another after a pause that grows, as often as `retries` says. Where a root is to be somebody else may
//    be, and go: if one who does not know the secret has answered in every round for `strangerLimit`, at any address, it is the last.
// 3. `done` runs once; not after cancel(). Its error has the reason for each address: InvalidUsage where a root did not know the secret,
//    SystemError where this process has no sockets left, otherwise RemoteError.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "bootstrap/asio.h"
#include "bootstrap/handshake.h"
#include "observe/address_table.h"

namespace tutti::bootstrap {

class Dialer : public std::enable_shared_from_this<Dialer> {
 public:
  struct Plan {
    std::vector<Address> addresses;
    Purpose purpose = Purpose::Root;
    uint64_t topic = 0;
    Secret secret{};
    std::string whom;  ///< for texts: "the root of the unique id"
    int64_t retries = 0;
    std::chrono::milliseconds pause{100};  ///< before the first new round; the next pauses are twice, three times … as long
    std::chrono::milliseconds roundLimit{5000};
    std::chrono::milliseconds strangerLimit{5000};  ///< of a root alone
    observe::AddressTable* table = nullptr;  ///< gets what came of the addresses; outlives the dialer
  };
  using Done = std::function<void(Result<std::shared_ptr<Link>>)>;

  static std::shared_ptr<Dialer> start(Reactor& reactor, Plan plan, Done done);
  void cancel();
  /// Nobody waits for the connection any more, it only carries last words: a round that ends for want of sockets is the last.
  void hurry();

  Dialer(Reactor& reactor, Plan plan, Done done);

 private:
  void beginRound();
  void tryNext();
  void onAttempt(size_t which, Result<Established> outcome);
  void endRound();
  void beginRoundAfter(std::chrono::milliseconds pause);
  void log(size_t taken) const;
  void finish(Result<std::shared_ptr<Link>> outcome);

  Reactor& reactor_;
  const Plan plan_;
  Done done_;
  asio::steady_timer timer_;
  std::vector<std::weak_ptr<Handshake>> attempts_;  // of this round, one for each address that was begun; each refers to the dialer
  std::vector<Status> problems_;                    // of this round, one for each address
  size_t failed_ = 0;
  bool isHurried_ = false;
  int64_t round_ = 0;
  std::optional<std::chrono::steady_clock::time_point> strangerCame_;  // who does not know the secret, and has answered ever since
  std::string stranger_;                                               // what is to be said of the last one
};

}  // namespace tutti::bootstrap
