// Brings messages between the processes of communicators to the hubs that they are for: where pipes between hosts end, that a
// communicator has failed, who has departed, who has come to a meeting.
//
// Owner: shared by the mesh's handlers and the Distant of each hub; keeps the engine. Any thread; messages are handled on that of the
// bootstrap.
// 1. A message for a hub that this process does not have yet waits for it, as a process may be a step behind; up to kMostWaiting bytes of
//    them for all hubs together.
// 2. What concerns all hosts spreads from host to host (spread.h), to one process of each: the first that can be reached. One whose ranks
//    have all left the hub hands it to the next. What concerns one pipe goes straight to the process at its other end.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "bootstrap/mesh.h"
#include "bootstrap/roster.h"
#include "comm/circle.h"
#include "comm/spread.h"
#include "progress/engine.h"
#include "transport/local/hub.h"

namespace tutti::comm {

enum class News : uint8_t { PipeEnd, PipeCount, Failed, Departed, Meeting, Standing, Finalized, Spread };

class Distant;

class Courier : public Spread::Audience, public std::enable_shared_from_this<Courier> {
 public:
  /// `roster` outlives it: its mesh holds the handlers.
  Courier(const bootstrap::Roster& roster, std::shared_ptr<progress::Engine> engine);

  const bootstrap::Roster& roster() const { return roster_; }
  progress::Engine& engine() const { return *engine_; }

  /// The hub can be spoken to from now on: it gets its Remote, unless it has one.
  void introduce(const std::shared_ptr<transport::local::Hub>& hub);
  /// It takes no messages any more; what it has said is on its way.
  void dismiss(uint64_t hub);

  Status send(int32_t process, uint64_t hub, News news, std::span<const std::byte> body);
  /// To every other host of the circle that ranks of the hub live in. Last: this process says nothing more about the hub.
  void sendToHosts(uint64_t hub, const Circle& circle, News news, std::span<const std::byte> body, Spread::Way way = Spread::Way::Along);

  /// A message came.
  void hear(int32_t from, std::span<const std::byte> message);

  bool isWorthPassingOn(const Spread::Piece& piece) override;
  bool take(const Spread::Piece& piece) override;

 private:
  struct Waiting {
    News news;
    std::vector<std::byte> body;
  };
  static constexpr size_t kMostWaiting = size_t{64} << 20;
  /// False: the ranks of this process have all left the hub.
  bool hearFor(uint64_t hub, int32_t from, News news, std::span<const std::byte> body);

  const bootstrap::Roster& roster_;
  const std::shared_ptr<progress::Engine> engine_;
  const std::shared_ptr<Spread> spread_;
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Distant>> hubs_;
  std::set<uint64_t> gone_;
  std::map<uint64_t, std::deque<Waiting>> waiting_;
  size_t waitingBytes_ = 0;
};

}  // namespace tutti::comm
