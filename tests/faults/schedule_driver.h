// One thread of a schedule, and what the threads share.
//
// Owner: the Runner (schedules_test.cc). A Driver is used by its own thread.
// 1. A rank is driven by thread rank % threads; with several ranks in an event a thread uses a group.
// 2. Buffers of work on streams stay alive until the rank's stream has been synchronised.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "faults/schedule.h"

namespace tutti::faults {

struct World {
  World(const Plan& plan, uint64_t seed);
  void expect(bool holds, const char* what, int event = -1, int rank = -1, int64_t seen = 0);

  const Plan& plan;
  const uint64_t seed;
  std::vector<std::deque<std::atomic<ncclComm_t>>> handles;  // by circle and place: written by the rank's thread, read by watchers too
  std::vector<ncclUniqueId> ids;                             // by circle
  std::deque<std::atomic<int>> ready;                        // by event: ranks whose work is complete
  std::deque<std::atomic<int>> at;                           // by thread: the event it is in
  std::atomic<int> failures = 0;
};

class Driver {
 public:
  Driver(World& world, int thread) : w_(world), thread_(thread), random_(world.seed * 31 + static_cast<uint64_t>(thread)) {}
  void run();

 private:
  /// A call whose result is to be checked.
  struct Work {
    std::vector<int> in, out, expected;
  };
  struct Member {
    int rank, place;
  };
  struct Queued {
    Member member;
    std::unique_ptr<Work> work;
    cudaStream_t stream;
  };

  void check(bool holds, const char* what, int rank = -1, int64_t seen = 0) { w_.expect(holds, what, event_, rank, seen); }
  const Circle& circle(int c) const { return w_.plan.circles[static_cast<size_t>(c)]; }
  std::atomic<ncclComm_t>& handle(int c, int place) { return w_.handles[static_cast<size_t>(c)][static_cast<size_t>(place)]; }
  bool drives(int rank) const { return rank % w_.plan.threads == thread_; }
  bool chance(int percent) { return random_.below(100) < static_cast<uint64_t>(percent); }
  std::vector<Member> mine(int c) const;
  ncclResult_t settle(ncclComm_t comm);

  void perform(const Event& e);
  void create(const Event& e);
  void abandon(const Event& e);
  void operate(const Event& e);
  void together(const Event& e);
  void divide(const Event& e);
  void revoke(const Event& e);
  void abort(const Event& e);
  void endBroken(const Event& e);
  void destroy(const Event& e);

  ncclResult_t join(int c, const Member& m, ncclComm_t* comm, int ranks);
  void publish(int c, const std::vector<Member>& members, const std::vector<ncclComm_t>& comms);
  ncclResult_t queue(int c, uint64_t seed, const Member& m, bool mayStream, ncclResult_t begun, std::vector<Queued>& queued);
  void finish(int c, std::vector<Queued>& queued);
  void verify(const Work& work, int rank);
  void flush(int rank);
  void complete(const Event& e, bool waits);
  void callInVain(int c, const std::vector<Member>& members);
  void endOne(int c, const Member& m, bool aborts);

  World& w_;
  const int thread_;
  Random random_;  // differs from thread to thread: for choices that the others need not know
  int event_ = 0;
  std::map<int, cudaStream_t> streams_;                        // by rank
  std::map<int, std::vector<std::unique_ptr<Work>>> pending_;  // by rank, on its stream
};

}  // namespace tutti::faults
