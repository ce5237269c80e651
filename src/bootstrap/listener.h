// Where others connect to: sockets that listen, and the strangers who have not proved themselves yet.
//
// Owner: the service. open() may be called by any thread and waits for nothing; start() and close() on the reactor's thread.
// 1. Who proves himself is handed on; everybody else is dropped, with at most one line of the log a second for all of them.
// 2. At most kMostPending strangers at a time, each for at most kHandshakeLimit; when they are too many, those who have been slow go
//    first. No stranger delays a member of the job by more than kSlow.
// 3. Without descriptors it waits for some: those who connect stay in the kernel's queue. After kLackLimit they are taken in one by one, on
//    a descriptor kept in reserve, and whoever proves himself then is handed on and makes it known that there are none (OnLack).
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/address.h"
#include "bootstrap/asio.h"
#include "bootstrap/handshake.h"
#include "core/unique_fd.h"

namespace tutti::bootstrap {

/// A descriptor that listens, not yet watched by anybody. InvalidUsage when somebody else listens there.
Result<UniqueFd> listenAt(const SocketAddress& address, const std::string& name);
/// Where it listens, with the port that the system gave.
Result<Address> listeningAddress(const UniqueFd& fd);

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  using OnEstablished = std::function<void(Established)>;
  /// What the connection was for that was let in on the reserve, as in Established.
  using OnLack = std::function<void(Purpose purpose, uint64_t topic, const Status& cause)>;
  static constexpr size_t kMostPending = 1024;
  static constexpr std::chrono::milliseconds kHandshakeLimit{5000};
  static constexpr std::chrono::milliseconds kSlow{500};
  static constexpr std::chrono::milliseconds kLackLimit{1000};

  Listener(Reactor& reactor, std::vector<UniqueFd> fds, Handshake::FindSecret findSecret, OnEstablished onEstablished,
           OnLack onLack = nullptr);

  void start();
  void close();
  /// Whether somebody has connected and is not served yet. On the reactor's thread.
  bool isAwaited();

 private:
  struct Door {
    explicit Door(asio::posix::stream_descriptor d) : descriptor(std::move(d)) {}
    asio::posix::stream_descriptor descriptor;
    bool isWaiting = false;
  };
  void wait(size_t door);
  void acceptAll(size_t door);
  bool makeRoom();
  void takeIn(UniqueFd fd);
  void onProof(Result<Established> outcome);
  void resumeLater();
  void report(const Status& why);
  void sayDropped();
  bool somebodyWaits(size_t door);
  bool mayGiveReserve(int problem);
  bool reserve();

  Reactor& reactor_;
  std::vector<UniqueFd> fds_;  // until start()
  Handshake::FindSecret findSecret_;
  OnEstablished onEstablished_;
  OnLack onLack_;
  std::vector<Door> doors_;
  UniqueFd reserve_;
  std::optional<std::chrono::steady_clock::time_point> lackSince_;  // and no stranger has one
  std::chrono::steady_clock::time_point lackedAt_;                  // the latest time
  Status lack_;                                                     // what is to be made known, as long as it lasts
  std::unique_ptr<asio::steady_timer> pause_;
  std::deque<std::weak_ptr<Handshake>> order_;  // pending ones, oldest first; some may be over
  size_t pending_ = 0;
  std::chrono::steady_clock::time_point reported_;
  std::chrono::steady_clock::time_point warned_;
  int64_t unreported_ = 0;
  std::string latest_;  // why the latest of them was dropped
};

}  // namespace tutti::bootstrap
