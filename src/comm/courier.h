// Brings messages between the processes of communicators to the hubs that they are for: where pipes between hosts end, that a
// communicator has failed, who has departed, who has come to a meeting.
//
// Owner: shared by the mesh's handlers and the Distant of each hub. Any thread; messages are handled on the bootstrap's thread.
// 1. A message for a hub that this process does not have yet waits for it, as a process may be a step behind; up to kMostWaiting bytes of
//    them for all hubs together.
// 2. What concerns a whole host goes to one of its processes: the first that can be reached. One whose ranks have all left the hub passes
//    it on to the next. What concerns one pipe goes to the process at its other end.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "bootstrap/mesh.h"
#include "bootstrap/roster.h"
#include "progress/engine.h"
#include "transport/local/hub.h"

namespace tutti::comm {

enum class News : uint8_t { PipeEnd, PipeCount, Failed, Departed, Meeting, Standing };

class Distant;

class Courier : public std::enable_shared_from_this<Courier> {
 public:
  /// `roster` outlives it: its mesh holds the handlers.
  Courier(const bootstrap::Roster& roster, progress::Engine& engine) : roster_(roster), engine_(engine) {}

  const bootstrap::Roster& roster() const { return roster_; }
  progress::Engine& engine() const { return engine_; }

  /// The hub can be spoken to from now on: it gets its Remote, unless it has one.
  void introduce(const std::shared_ptr<transport::local::Hub>& hub);
  /// It takes no messages any more. `successors`: processes of this host that may still have ranks of it.
  void dismiss(uint64_t hub, const std::vector<int32_t>& successors);

  Status send(int32_t process, uint64_t hub, News news, std::span<const std::byte> body);
  /// To every other host that ranks of the hub live on.
  void sendToHosts(const transport::local::Hub& hub, News news, std::span<const std::byte> body);

  /// A message came.
  void hear(int32_t from, std::span<const std::byte> message);

 private:
  struct Waiting {
    int32_t from;
    std::vector<std::byte> message;
  };
  static constexpr size_t kMostWaiting = size_t{64} << 20;
  void hearForGone(int32_t from, uint64_t hub, News news, std::span<const std::byte> message);

  const bootstrap::Roster& roster_;
  progress::Engine& engine_;
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Distant>> hubs_;
  std::map<uint64_t, std::vector<int32_t>> gone_;  // with their successors
  std::map<uint64_t, std::deque<Waiting>> waiting_;
  size_t waitingBytes_ = 0;
};

}  // namespace tutti::comm
