// The inside of a mesh: a connection to each peer that is spoken with, opened at need.
//
// Owner: the mesh's handle, the job while the communicator is made, and handlers under way. Everything runs on the reactor's thread but
// for what says otherwise; nothing here takes the service's lock but close() at its end.
// 1. Each direction between two processes uses one connection, for good: the one that the sender opened, or the one that it had been
//    called on before it first spoke. So messages stay in order, and usually one connection serves both.
// 2. Who is connected to answers. That a connection breaks off before is no loss where tell() alone has opened it: it may have come in the
//    moment in which the other one left in peace.
// 3. A loss is told to the handler once, and passed on along the tree, so that everybody hears of it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/alarm.h"
#include "bootstrap/dialer.h"
#include "bootstrap/exchanges.h"
#include "bootstrap/link.h"
#include "bootstrap/mesh.h"
#include "bootstrap/roster.h"

namespace tutti::bootstrap {

class Core;
struct Lease;

class MeshCore : public std::enable_shared_from_this<MeshCore> {
 public:
  using OnTrouble = std::function<void(const Status& cause)>;

  /// Under the service's lock, with which it registers.
  static std::shared_ptr<MeshCore> make(const std::shared_ptr<Core>& core, const Membership& membership, const Secret& key,
                                        std::shared_ptr<Lease> lease);
  /// What users get; its end closes the mesh. Any thread.
  static std::shared_ptr<Mesh> makeHandle(std::shared_ptr<MeshCore> core);

  // Any thread.
  const Secret& key() const { return key_; }
  bool isOfThisProcess() const;
  void adoptParent(const std::shared_ptr<Link>& link);
  /// Sends the table to the children in the tree; `onTrouble` hears of those who cannot be reached.
  void spread(std::shared_ptr<const std::vector<std::byte>> table, const UniqueId& id, OnTrouble onTrouble);
  Status send(int32_t process, std::span<const std::byte> message) { return queue(process, message, true); }
  Status tell(int32_t process, std::span<const std::byte> message) { return queue(process, message, false); }
  bool isReachable(int32_t process) const;
  void after(std::chrono::milliseconds time, std::function<void()> call);
  std::shared_ptr<Exchange> allGather(std::span<const std::byte> own, std::chrono::milliseconds limit);
  void setHandlers(Mesh::OnMessage onMessage, Mesh::OnLost onLost);
  void announceTrouble(const Status& cause);
  /// The user is gone: no handler runs any more.
  void silence();
  void close();
  /// Waits a moment for what was said last to be on its way.
  void settle();
  Mesh::Counters counters() const;

  /// Somebody has connected for this communicator.
  void welcome(const std::shared_ptr<Link>& link);

  /// `mostEarlyBytes`: of messages that come before there is a handler, until nothing more is read.
  MeshCore(std::shared_ptr<Core> core, const Membership& membership, const Secret& key, std::shared_ptr<Lease> lease,
           size_t mostEarlyBytes = size_t{64} << 20);

 private:
  struct Peer {
    std::shared_ptr<Link> out;                  // what is sent goes here
    std::vector<std::shared_ptr<Link>> others;  // what it opened beside
    std::weak_ptr<Dialer> dialer;               // lives on by itself while it is under way
    std::vector<std::pair<Kind, std::vector<std::byte>>> waiting;
    bool hasLeft = false;   // it said goodbye, or is lost
    bool isNeeded = false;  // that it cannot be reached is a loss

    bool isDialing() const { return !dialer.expired(); }
  };
  struct Message {
    int32_t process;
    std::vector<std::byte> bytes;
  };

  void post(std::function<void()> task);
  Peer& peer(int32_t process) { return peers_[process]; }
  Status queue(int32_t process, std::span<const std::byte> message, bool isNeeded);
  void transmit(int32_t process, Kind kind, std::vector<std::byte> payload, bool isNeeded = true);
  void dial(int32_t process, Purpose purpose, uint64_t topic, const Secret& secret, std::vector<std::byte> first, Kind firstKind,
            OnTrouble onTrouble);
  void adopt(int32_t process, const std::shared_ptr<Link>& link, bool isOpenedHere);
  void listenTo(int32_t process, const std::shared_ptr<Link>& link, bool hasSpoken);
  void onFrame(int32_t process, const std::shared_ptr<Link>& link, Kind kind, std::span<const std::byte> payload);
  void deliver(int32_t process, std::span<const std::byte> message);
  void giveUp(int32_t process, const Status& cause);
  void lose(int32_t process, const Status& cause, int32_t heardFrom);
  void tellLosses();
  static std::vector<std::byte> encodeLoss(int32_t process, const Status& cause);
  void passOn(int32_t process, const Status& cause, int32_t heardFrom);
  void setReading(bool isReading);
  void passAlong(int32_t except, Kind kind, std::span<const std::byte> payload);
  void onBye(int32_t process, const std::shared_ptr<Link>& link, bool isLast);
  Exchanges::Ways waysOfExchanges();
  std::vector<int32_t> treeNeighbours() const;
  void end();
  void giveUpDialing();
  void release();
  void sayGoodbye(const std::shared_ptr<Link>& link, bool isLast);
  void sayLast(int32_t process, const std::shared_ptr<Link>& link, Kind firstKind, std::vector<std::byte> first);

  const std::shared_ptr<Core> core_;
  const Membership membership_;
  const Secret key_;
  const size_t mostEarlyBytes_;
  std::shared_ptr<Lease> lease_;
  /// Held while something is still to be said on a connection: the end of the last one that holds it is heard by settle().
  struct Unsaid {
    std::promise<void> over;
    ~Unsaid() { over.set_value(); }
  };
  std::shared_ptr<Unsaid> unsaid_ = std::make_shared<Unsaid>();
  std::future<void> allSaid_ = unsaid_->over.get_future();
  std::map<int32_t, Peer> peers_;
  bool isClosed_ = false;
  std::deque<Message> early_;  // what came before there was a handler
  size_t earlyBytes_ = 0;      // of memory: also messages without bytes take some
  std::vector<std::pair<int32_t, Status>> losses_;  // in the order of hearing
  size_t lossesTold_ = 0;                           // of them, to the handler
  Exchanges exchanges_;
  Status trouble_;  // of this process, which it has told the others
  std::map<uint64_t, Alarm> alarms_;  // of after()
  uint64_t alarmsSet_ = 0;

  std::recursive_mutex handlerMutex_;  // held while a handler runs; a handler may drop the mesh
  Mesh::OnMessage onMessage_;          // under handlerMutex_, with the next two
  Mesh::OnLost onLost_;
  bool hasHandlers_ = false;
  bool isSilent_ = false;  // under handlerMutex_

  mutable std::mutex mutex_;        // leaf: for what send() looks at, and so that calls are posted in their order
  std::map<int32_t, Status> gone_;  // under mutex_
  std::map<int32_t, Status> unreachable_;  // under mutex_: what tell() could not reach
  std::atomic<uint64_t> sent_{0};   // counters: order nothing
  std::atomic<uint64_t> received_{0};
  std::atomic<uint64_t> opened_{0};
  std::atomic<uint64_t> accepted_{0};
};

}  // namespace tutti::bootstrap
