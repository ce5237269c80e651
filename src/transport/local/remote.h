// The ranks of a communicator on other hosts, as those of this host see them: pipes that a network carries, and news.
//
// Owner: the Hub that it belongs to; made by whoever knows the network (comm/courier.h). Any thread of the process.
// 1. Nothing blocks but wait(). Connections are made while progress() is called, or by a thread behind it.
// 2. After quiet() has returned, nothing reads or writes buffers of this process's ranks for the communicator any more; its pipes are dead.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>

#include "core/ids.h"
#include "core/status.h"
#include "transport/local/pipe.h"

namespace tutti::transport::local {

class Hub;
struct RankWait;

struct PipeKey {
  ChannelId channel;
  uint8_t port = 0;
  Rank from;
  Rank to;
  friend bool operator<(const PipeKey& a, const PipeKey& b) {
    return std::tie(a.channel, a.port, a.from, a.to) < std::tie(b.channel, b.port, b.from, b.to);
  }
};

/// How a rank is reached: for messages to people.
struct Way {
  std::string host;
  std::string link;  ///< "Socket 10.0.0.3:4711", "shared memory of node7"
};

class Remote {
 public:
  Remote() = default;
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;
  virtual ~Remote() = default;

  /// Which host a rank lives on: numbers that all ranks agree about.
  virtual int32_t hostOf(Rank rank) const = 0;
  /// To a rank on another host: its name, the network, and the address that a data connection with it has. Takes locks: for slow paths.
  virtual Way wayTo(Rank rank) const = 0;

  /// How the network is to be used. `deviceOf`: which device carries this process's half of a pipe. `communicator`: its number, the same on
  /// all ranks. `trafficClass`: what its configuration says, -1 for nothing.
  struct Usage {
    std::function<int32_t(const PipeKey& key, bool sends)> deviceOf;
    uint64_t communicator = 0;
    int32_t trafficClass = -1;
  };
  /// Before the first half is asked for, by each rank of the process alike; the first word counts. Errors are the network's.
  virtual Status use(Usage usage) = 0;
  /// This process's half of a pipe to, or from, a rank on another host. Both sides ask with the same sizes.
  virtual Result<PipeView> sendHalf(const PipeKey& key, uint32_t slots, uint64_t slotBytes) = 0;
  virtual Result<PipeView> receiveHalf(const PipeKey& key, uint32_t slots, uint64_t slotBytes) = 0;

  /// Moves what can be moved. Whether anything was.
  virtual bool progress() = 0;
  /// The same; when nothing moves, sleeps until something may, or the time is up.
  virtual void wait(std::chrono::nanoseconds most) = 0;
  /// The caller goes away: what it left is seen to.
  virtual void leave() = 0;

  /// For the other hosts: where a rank of this process stands, which they then have on its board and among its waits. Said now and then
  /// while a wait lasts (`wait`; the same `episode` as long as it is the same), and once when it is over (null).
  virtual void stands(Rank rank, const RankWait* wait, uint64_t episode) = 0;
  /// The communicator has failed, and that is where the rank stood, for the others' verdicts: its last word about waits. False: nothing was
  /// said, as there are many processes.
  virtual bool gaveUp(Rank rank, const RankWait& wait, uint64_t episode) = 0;
  /// The same of all ranks of this host, which may wait for nothing: how far they have come.
  virtual void haveCome() = 0;
  /// The least time between two words of a wait, and before the first: it grows with the ranks that may have as much to say.
  virtual std::chrono::nanoseconds pause() const = 0;
  /// The signature of the latest message that has come from the rank over one of its pipes; 0: none has.
  virtual uint64_t lastHeard(Rank rank) const = 0;

  /// Whether something that the rank of this process has sent is on its way, or will be found to be lost, so that who waits for it does not
  /// wait in vain. What lies at the other side, or is not wanted there, is not on its way.
  virtual bool isSending(Rank rank) = 0;
  /// Whether something may still come that a rank has sent which has departed or finalized since: news of it may be faster than its last
  /// messages.
  virtual bool owes(Rank rank) = 0;

  /// For the other hosts: the communicator has failed; a rank has departed, or makes no more calls; something for comm/meeting.h, of all
  /// ranks or of these: then it needs nobody else who stands between. `toAll`: every process of those hosts is to hear it,
  /// if there are no more than 64 in all.
  virtual void failed(const Status& cause) = 0;
  virtual void departed(Rank rank, uint64_t calls) = 0;
  virtual void finalized(Rank rank, uint64_t calls) = 0;
  virtual void tell(std::span<const std::byte> message, std::span<const int32_t> members, bool toAll) = 0;

  /// A child of this hub, whose ranks are on several hosts, too.
  virtual void adopt(const std::shared_ptr<Hub>& child) = 0;
  virtual void quiet() = 0;
};

}  // namespace tutti::transport::local
