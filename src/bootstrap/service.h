// How the ranks of a communicator find each other, in one process, in several, on several hosts.
//
// Owner: one Service a process (tests: one for each that they play), passed to whoever needs it. Any thread may call anything here.
// 1. Nothing waits for another rank: join() announces, Participant::poll() looks. makeId() may ask a name server, with NCCL_COMM_ID.
// 2. Ranks that are all threads of the process that made the id meet without a socket and without waiting for any thread.
// 3. There is one thread, and sockets, while something needs them: an id that was made and has not served, a join across processes, a
//    mesh. A moment later there is neither.
// 4. A join ends once, with the same for all ranks of the communicator: the roster, or an error whose cause everybody hears.
// 5. Only who knows the id takes part. Anybody else is dropped and disturbs nobody (seal.h, listener.h).
// 6. In a forked child it begins anew: what the parent had is left alone, and its joins and meshes are dead there.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/unique_fd.h"
#include "bootstrap/roster.h"
#include "bootstrap/unique_id.h"
#include "bootstrap/world.h"
#include "core/ids.h"
#include "core/status.h"

namespace tutti::bootstrap {

class Core;
class Job;
struct Traffic;

/// Makes the memory that the processes of a host share. Runs on the service's thread in the first process of a host that has several; the
/// roster is complete but for `shared` and `mesh`.
using MakeShared = std::function<Result<UniqueFd>(const Roster& roster)>;

struct Limits {
  /// For the ranks that have not come; 0: as long as it takes. Looked at by poll().
  std::chrono::milliseconds waiting{0};
  /// For everything between the last rank's coming and the roster in all processes. What rank 0 says counts.
  std::chrono::milliseconds setUp{30'000};
};

/// One rank's way to a communicator. Keeps the roster, and with it the mesh: let it go when the communicator ends.
class Participant {
 public:
  Participant(std::shared_ptr<Job> job, Rank rank, Limits limits);
  Participant(Rank rank, Status refused);  ///< one that never took part
  /// A rank that leaves before the end has given up: the others are told.
  ~Participant();
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  /// Nothing while ranks are missing; and, for a second at most, until other processes have been told of an error.
  std::optional<Result<std::shared_ptr<const Roster>>> poll() const;
  /// The error, as soon as there is one.
  Status failure() const;
  /// This rank will not take part: everybody else gets the cause. After the end it reaches the other processes as a loss of this one,
  /// through the mesh.
  void end(const Status& cause);
  /// "ranks 1, 4 of 8"; in other processes than the root's what the root has said last, or that it has not answered.
  std::string describeMissing() const;

 private:
  void letItBeSaid() const;

  const std::shared_ptr<Job> job_;  // null when refused
  const Rank rank_;
  const Status refused_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  const std::chrono::milliseconds waiting_{0};
};

class Service {
 public:
  explicit Service(World world = {});
  /// Ends what is under way, for everybody, and waits for the thread.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// A new id, good for one communicator, at whose root this process listens from now on. With NCCL_COMM_ID: the id of that address, the
  /// same in every process and time and again; rank 0's process listens there.
  Result<UniqueIdBytes> makeId();

  /// Announces `rank` of `ranks` of this process. Several ids share the ranks between their roots (blockOf()). Errors come out of
  /// poll(): InvalidArgument when an id is none of ours or ranks disagree about how many they are, InvalidUsage when the rank is there
  /// already or the id has served, RemoteError when a process cannot be reached or has died.
  std::shared_ptr<Participant> join(std::span<const UniqueIdBytes> ids, int32_t ranks, Rank rank, const Note& note, MakeShared makeShared,
                                    Limits limits = {});

  /// A number that stands for the id in logs.
  static uint64_t hashOf(const UniqueIdBytes& id);

  /// Whether the thread is there: for tests of rule 3.
  bool isIdle() const;
  /// What this process has sent to others and received from them since it began: for tests of what a set-up costs.
  Traffic traffic() const;

 private:
  struct Box;
  Core& core();

  const World world_;
  std::atomic<Box*> box_;  ///< replaced by the first call in a forked child (acq_rel, pairs with itself)
};

}  // namespace tutti::bootstrap
