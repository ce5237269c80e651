// Messages between the processes of a communicator outside its data paths: authenticated, encrypted, in order, as long as it lives.
//
// Owner: the roster, and whoever shares it from there. Any thread may call. Handlers run on the service's thread, one at a time, with no
// lock held that any other function here takes, but for the destructor; they must not wait.
// 1. Nothing blocks. Messages from one process to another arrive in the order of send() and tell(), each whole. A connection is opened
//    when it is first needed; those of the tree (tree.h) are there from the start.
// 2. All processes call allGather() and barrier() in the same order. Rounds and connections of a process: O(log processes).
// 3. A process that goes without a word is reported once in every process, within moments, by those whom it has answered, as long as
//    those are there along the tree who pass it on: who leaves in peace leaves a gap. Processes of a host look for each other besides
//    (comm/losses.h).
// 4. Destroying it says goodbye to the others, who are not told of a loss. The destructor waits for a handler that runs on another
//    thread; nothing runs in one afterwards.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/status.h"

namespace tutti::bootstrap {

/// What every process gave, by process.
using Gathered = std::vector<std::vector<std::byte>>;

/// An all-gather or a barrier that is under way.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Nothing while parts are missing; afterwards all of them, or an error that names who has not come.
  virtual std::optional<Result<std::shared_ptr<const Gathered>>> poll() const = 0;
  /// While it is under way: whose parts are missing here, and who has to send next, ascending.
  virtual std::vector<int32_t> missing() const = 0;

 protected:
  Exchange() = default;
  Exchange(const Exchange&) = default;
  Exchange& operator=(const Exchange&) = default;
};

class Mesh {
 public:
  using OnMessage = std::function<void(int32_t process, std::span<const std::byte> message)>;
  using OnLost = std::function<void(int32_t process, const Status& cause)>;

  struct Counters {
    uint64_t messagesSent = 0;  ///< of allGather() and barrier() too
    uint64_t messagesReceived = 0;
    uint64_t connectionsOpened = 0;    ///< by this process
    uint64_t connectionsAccepted = 0;  ///< opened by others
  };

  static constexpr size_t kMostMessageBytes = size_t{32} << 20;

  virtual ~Mesh() = default;

  /// Queued. InvalidArgument for a process that does not exist, itself, or too long a message; RemoteError when the process is known to
  /// be gone. A message to a process that goes afterwards is lost with it, and the loss reported.
  virtual Status send(int32_t process, std::span<const std::byte> message) = 0;
  /// The same for what others may bring as well. That no connection can be made, or that it breaks off before the other side has said
  /// a word, is then no loss: the process may have left in peace. It is not tried again, and the next calls return RemoteError.
  virtual Status tell(int32_t process, std::span<const std::byte> message) = 0;
  /// Whether it is neither known to be gone nor found so by tell().
  virtual bool isReachable(int32_t process) const = 0;
  /// Runs `call` as handlers run, after that time; never when the mesh has gone by then.
  virtual void after(std::chrono::milliseconds time, std::function<void()> call) = 0;
  /// Until then messages wait, up to a bound, and then at their senders. Losses that are known already are reported at once.
  virtual void setHandlers(OnMessage onMessage, OnLost onLost) = 0;
  /// `limit`: after so long without all parts it fails, here and everywhere.
  virtual std::shared_ptr<Exchange> allGather(std::span<const std::byte> own, std::chrono::milliseconds limit) = 0;
  /// An all-gather of nothing.
  virtual std::shared_ptr<Exchange> barrier(std::chrono::milliseconds limit) = 0;
  virtual Counters counters() const = 0;

 protected:
  Mesh() = default;
  Mesh(const Mesh&) = default;
  Mesh& operator=(const Mesh&) = default;
};

}  // namespace tutti::bootstrap
