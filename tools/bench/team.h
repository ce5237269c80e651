// The ranks of a benchmark that are threads of this process: one thread and one communicator each, given one job after the other.
//
// Owner: the thread that runs the benchmark; run() and the destructor belong to it. A job runs on all rank threads at once.
// 1. The first rank that fails, or the deadline, ends the team: the barrier is given up, all communicators are aborted, and every
//    later run() returns the same error. Nobody is left waiting; ranks of other processes hear of it from the library.
// 2. What a job writes is seen by the caller after run(), and by the next job.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/barrier.h"
#include "core/status.h"
#include "nccl.h"

namespace tutti::bench {

/// The ranks of this process among all. Processes have equally many, and take ranks in the order of their numbers.
struct Crew {
  int ranks = 1;
  int firstRank = 0;
  int threads = 1;

  bool isAlone() const { return threads == ranks; }
};

/// One rank, as its job sees it.
class Member {
 public:
  Member(const Crew& crew, int index, Barrier& barrier)
      : rank_(crew.firstRank + index), index_(index), isAlone_(crew.isAlone()), barrier_(&barrier) {}

  int rank() const { return rank_; }
  /// Among the threads of this process.
  int index() const { return index_; }
  ncclComm_t comm() const { return comm_.load(std::memory_order_relaxed); }

  /// Waits for all other ranks: at the barrier, or, where there are other processes, in an all-reduce. An error when the team has ended.
  Status meet();

  /// An nccl result as a Status: OK, or which rank failed in what, with both texts of the library.
  Status check(ncclResult_t result, std::string_view what) const;

 private:
  friend class Team;
  int rank_;
  int index_;
  bool isAlone_;
  Barrier* barrier_;
  /// Set by the rank's first job, taken away by run()'s thread when the team ends; only the pointer itself is exchanged.
  std::atomic<ncclComm_t> comm_{nullptr};
};

class Team {
 public:
  using Job = std::function<Status(Member&)>;

  /// Starts the threads and joins them into one communicator. `timeout` bounds each run(); zero means none.
  static Result<std::unique_ptr<Team>> start(int ranks, std::chrono::milliseconds timeout);
  /// The same with ranks in other processes, which know `id` too.
  static Result<std::unique_ptr<Team>> start(const Crew& crew, const ncclUniqueId& id, std::chrono::milliseconds timeout);

  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int ranks() const { return crew_.ranks; }
  const Crew& crew() const { return crew_; }

  /// Runs `job` on every rank and returns when all have ended: the first error, or OK. `what` names the job in messages.
  Status run(std::string_view what, const Job& job);

 private:
  Team(const Crew& crew, std::chrono::milliseconds timeout);
  void serve(Member& member);
  void end(std::unique_lock<std::mutex>& lock, std::string_view what);

  const Crew crew_;
  Barrier barrier_;
  const std::chrono::milliseconds timeout_;
  std::deque<Member> members_;

  std::mutex mutex_;
  std::condition_variable hasJob_;
  std::condition_variable hasNews_;
  // Under mutex_:
  const Job* job_ = nullptr;
  uint64_t jobs_ = 0;    ///< given out so far
  int working_ = 0;      ///< threads that still run the current one
  bool isClosing_ = false;
  Status failure_;

  std::vector<std::thread> threads_;
};

/// ncclGetUniqueId as a Result.
Result<ncclUniqueId> makeUniqueId();

}  // namespace tutti::bench
