// The listening sockets of a network, shared by all its listeners, and the connections that have not proved themselves yet.
//
// Owner: the SocketNetwork and its listeners together. Any thread; one lock, which is held for what is ready and never for a wait.
// 1. A connection counts when all its streams have proved to know their listener's key. Everybody else is dropped, with at most one line
//    of the log a second for all of them; it is written by speak(), for whoever polls may be in a pass of an engine.
// 2. Strangers hold at most kMostPending descriptors, each for the handshake's timeout, or for a grace when they are too many or
//    descriptors are scarce. Until then those who connect stay in the kernel's queue, and are looked for each kPause: a queue that cannot
//    be emptied must not keep awake whoever waits for descriptor().
// 3. It listens while a listener is open, and no longer: who comes in between is refused by the kernel.
// 4. descriptor() becomes ready when poll() may have something to do, or did something for another listener.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/unique_fd.h"
#include "transport/socket/handshake.h"
#include "transport/socket/stream.h"

namespace tutti::transport::socket {

/// The sockets of one connection, stream 0 first.
struct Accepted {
  std::vector<UniqueFd> streams;
  Address peer;
};

class Acceptor {
 public:
  static constexpr size_t kMostPending = 256;
  static constexpr std::chrono::milliseconds kGrace{500};
  static constexpr std::chrono::milliseconds kPause{10};           ///< between two looks while there is no room
  static constexpr std::chrono::milliseconds kGraceOfSilent{100};  ///< of those who have not greeted a listener

  /// Of addresses that can be listened on; one that cannot is left out, none at all is an error.
  static Result<std::shared_ptr<Acceptor>> create(const std::vector<LocalAddress>& addresses, const Settings& settings);

  /// Lets connections to `listenId` in; `streams` is how many sockets each has. Listens on a free port of each address, unless it does.
  Status open(uint64_t listenId, const Key& key, uint16_t streams);
  /// No more of them; what has come and was not taken is closed.
  void close(uint64_t listenId);
  /// The next complete connection, if there is one. Does what poll() does when there is none yet.
  Result<std::optional<Accepted>> take(uint64_t listenId);

  /// Addresses with their ports, while one is open; those of `interface` first.
  std::vector<Address> addresses(std::string_view interface) const;
  int descriptor() const { return epoll_.get(); }
  /// Writes what there is to be said about those who were dropped, and addresses that cannot be listened on any more.
  void speak();
  size_t pendingForTest() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Listening {
    UniqueFd fd;
    std::string interface;
    Address address;
  };
  /// A socket whose other side has not proved itself.
  struct Pending {
    UniqueFd fd;
    Address peer;
    Clock::time_point since;
    Clock::time_point deadline;
    std::array<uint8_t, sizeof(Hello) + sizeof(Proof)> received{};
    size_t size = 0;
    bool challenged = false;
    Nonce nonce{};
  };
  /// A connection of which some streams are there.
  struct Assembly {
    std::vector<UniqueFd> streams;
    size_t present = 0;
    Address peer;
    Clock::time_point deadline;
  };
  struct Door {
    Key key{};
    uint16_t streams = 1;
    std::map<ConnectionId, Assembly> assemblies;
    std::deque<Accepted> complete;
  };
  enum class Step : uint8_t { Wait, Drop, Done };

  Acceptor(const std::vector<LocalAddress>& addresses, const Settings& settings) : addresses_(addresses), settings_(settings) {}
  /// On one address at least.
  Status listen();
  Status listenOn(const LocalAddress& local);
  Status poll();
  Status acceptAll(int listener);
  static void shutDown(const std::vector<UniqueFd>& streams);
  void stopListening();
  void setListening(bool isListening);
  void forgetPending(std::map<uint64_t, Pending>::iterator who);
  enum class Room : uint8_t { Made, Later, None };
  Room makeRoom();
  void advance(uint64_t pendingId);
  Step read(Pending& pending);
  Step challenge(Pending& pending);
  Step finish(Pending& pending);
  void expire();
  Step drop(const Pending& pending, std::string_view why);
  void report(const Address& peer, std::string_view why);

  std::vector<LocalAddress> addresses_;  ///< const from create() on
  const Settings settings_;
  UniqueFd epoll_;
  UniqueFd completed_;        ///< an eventfd: told whenever a connection is complete, so that every listener's waiter looks
  mutable std::mutex mutex_;  ///< protects what follows
  std::vector<Listening> listening_;
  bool isListening_ = true;     ///< the listening sockets are watched
  Clock::time_point resumeAt_;  ///< while they are not
  std::unordered_map<uint64_t, Door> doors_;
  std::map<uint64_t, Pending> pending_;  ///< by age
  uint64_t nextPending_ = 0;
  Clock::time_point nextExpiry_;
  Clock::time_point reported_;
  int64_t unreported_ = 0;
  std::string words_;                  ///< of the latest of them
  std::string failure_;                ///< of the latest address that could not be listened on
  bool saysFailure_ = false;           ///< which has not been said yet
  std::atomic<bool> hasWords_{false};  ///< a hint to speak(), which then looks under the lock: orders nothing
};

}  // namespace tutti::transport::socket
