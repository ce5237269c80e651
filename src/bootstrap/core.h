// The inside of a service: its tables, its lock, its thread, and the door that others knock at.
//
// Owner: the service; joins and meshes keep the memory alive, without a thread, after it has ended. Any thread.
// 1. `mutex` guards the tables and everything that roots, jobs and uplinks hold. It is held for short: no system call that waits, no
//    handler of a user. The reactor's lock and an outcome's are taken inside it, never the other way round.
// 2. The door (a listener on the chosen interfaces) is open while somebody has a lease: an id that waits, a join across processes, a mesh.
// 3. Ids that have served are remembered, the latest kRemembered of them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bootstrap/listener.h"
#include "bootstrap/messages.h"
#include "bootstrap/reactor.h"
#include "bootstrap/service.h"
#include "observe/address_table.h"

namespace tutti::bootstrap {

class Job;
class MeshCore;
class Root;

/// Sockets that listen, and the thread that serves them, for as long as somebody has it.
struct Lease {
  Lease(Reactor& r, ReactorHold h, std::shared_ptr<Listener> l, std::vector<Address> a);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  Reactor& reactor;
  ReactorHold hold;
  const std::shared_ptr<Listener> listener;
  const std::vector<Address> addresses;
};

class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(const World& world, Status crypto);

  // Without the lock.
  Result<UniqueIdBytes> makeId();
  std::shared_ptr<Participant> join(std::span<const UniqueIdBytes> ids, int32_t ranks, Rank rank, const Note& note, MakeShared makeShared,
                                    Limits limits);
  /// As others are to hear it of this process: "rank 3 (process 4711 on host): …".
  Status inOwnName(std::string_view whom, const Status& cause) const;
  /// Ends everything and the thread.
  void shutDown();
  bool isOfThisProcess() const;

  // Under the lock.
  /// The door; opened when it is not.
  Result<std::shared_ptr<Lease>> lease();
  /// One more, at addresses with fixed ports.
  Result<std::shared_ptr<Lease>> leaseAt(const std::vector<Address>& addresses);
  Member describeSelf(const std::vector<Address>& addresses);
  /// `why`: what ended it, or nothing if it ended well.
  void retire(const Root& root, const Status& why);
  void retire(const Job& job, const Status& why);
  /// How many have words for other processes about the communicator of that first id which are not under way yet. A program whose
  /// communicator has failed gets to know a moment later then, since it may end.
  using Unsaid = std::shared_ptr<std::atomic<int>>;
  Unsaid unsaidOf(uint64_t firstId);
  /// Keeps the door open a little longer. Whoever wants one meanwhile gets the same: many failures keep no more open than one.
  void linger(std::shared_ptr<Lease> door);
  /// Only while somebody waits there to be let in.
  void lingerWhileAwaited(std::shared_ptr<Lease> door);
  /// What a rank hears that comes with an id that has served.
  Status fateOf(uint64_t id) const;
  void addMesh(uint64_t number, const std::shared_ptr<MeshCore>& mesh) { meshes_[number] = mesh; }
  void removeMesh(uint64_t number) { meshes_.erase(number); }
  std::shared_ptr<Root> findRoot(const UniqueId& id);
  const Settings& settings();

  const uint64_t token;
  std::mutex mutex;
  observe::AddressTable dialled{observe::Subsys::Init | observe::Subsys::Net, "Bootstrap"};  ///< of all that are dialled; any thread
  Reactor reactor;

 private:
  static constexpr size_t kRemembered = 4096;
  Result<UniqueIdBytes> makeFixedId(const std::string& where);
  Result<std::shared_ptr<Lease>> makeLease(std::vector<UniqueFd> fds, std::vector<Address> addresses);
  Result<std::shared_ptr<Job>> findJob(std::span<const UniqueIdBytes> raw, int32_t ranks, Rank rank);
  /// Whom a rank that cannot take part has to tell: its own root, and the first one, which waits for all others.
  std::vector<UniqueId> rootsToTell(std::span<const UniqueIdBytes> raw, int32_t ranks, Rank rank) const;
  void tell(std::vector<UniqueId> roots, Rank rank, const Status& cause);
  void sayIfOpen();
  Status openFixedRoot(const UniqueId& id);
  void remember(const UniqueId& id, const Status& why);
  std::optional<Secret> findSecret(Purpose purpose, uint64_t topic);
  void onEstablished(Established connection);
  void onLack(Purpose purpose, uint64_t topic, const Status& cause);
  void keepWhileAwaited(std::shared_ptr<Lease> door, std::chrono::steady_clock::time_point until);

  const World world_;
  const pid_t pid_;
  const Status crypto_;
  std::optional<Settings> settings_;
  std::optional<HostFacts> host_;
  std::weak_ptr<Lease> lease_;
  bool hasEnded_ = false;
  bool saidOpen_ = false;                                      // that connections are not authenticated
  std::unordered_map<uint64_t, std::shared_ptr<Root>> roots_;  // those that still wait
  std::unordered_map<uint64_t, std::shared_ptr<Job>> jobs_;    // by the hash of the first id
  std::unordered_map<uint64_t, std::weak_ptr<MeshCore>> meshes_;
  struct Served {
    Secret secret{};
    Status why;
  };
  std::unordered_map<uint64_t, Served> served_;
  std::deque<uint64_t> servedOrder_;  // oldest first
  std::unordered_map<uint64_t, Served> failedFixed_;  // the latest failure at each NCCL_COMM_ID, which may serve again
  std::unordered_map<uint64_t, std::weak_ptr<std::atomic<int>>> unsaid_;  // by the hash of the first id
};

}  // namespace tutti::bootstrap
