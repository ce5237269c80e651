// The progress engine: moves the messages of remote pipes. Whoever waits drives it; a thread of its own takes over when nobody does.
//
// Owner: the communicators that use the network, together (one engine for all its devices); JobGroups point to it and must be gone first.
// Any thread but the engine's own may be the last.
// 1. One thread at a time makes a pass over the jobs. Who finds another one at it goes on at once with what it was doing.
// 2. A pass has no lock but its own, makes no system call that waits, allocates nothing and logs nothing. It is short, and ends
//    early when somebody asks for the lock.
// 3. Nobody sleeps with the lock. What happens between a pass and a sleep ends the sleep.
// 4. The engine's thread sleeps while nothing happens, and looks rarely while others drive. It is there for data that a call left
//    behind (kick), for connections being set up, and for arrivals while nobody waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "progress/job.h"
#include "progress/poller.h"
#include "transport/net/network.h"

namespace tutti::progress {

namespace net = transport::net;

class Engine {
 public:
  /// Starts the engine's thread, with a name of its own if `namesThread`.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<net::Network> network, bool namesThread = false);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  net::Network& network() { return *network_; }
  /// A pass, unless another thread makes one. Whether anything moved.
  bool progress();
  /// For who has nothing else to do: a pass, and when nothing moved a sleep until something may, or the time is up (negative: never);
  /// it may end early. Whether anything has moved, here or elsewhere, since the call began.
  bool progressOrWait(Nanoseconds timeout);
  /// Something was left to do, and the caller goes away: the engine's thread sees to it.
  void kick();
  /// Passes so far, of any thread; the engine's own. For tests and reports.
  uint64_t passes() const { return passes_.load(std::memory_order_relaxed); }

 private:
  friend class JobGroup;

  /// The lock, taken by one who must have it: whoever makes passes gives way.
  class Exclusive {
   public:
    explicit Exclusive(Engine& engine) : engine_(engine) {
      engine_.claims_.fetch_add(1, std::memory_order_relaxed);  // a hint to pass(), ordered by the mutex
      engine_.mutex_.lock();
      engine_.claims_.fetch_sub(1, std::memory_order_relaxed);
    }
    Exclusive(const Exclusive&) = delete;
    Exclusive& operator=(const Exclusive&) = delete;
    ~Exclusive() { engine_.mutex_.unlock(); }

   private:
    Engine& engine_;
  };
  class AcceptWatcher final : public Watcher {
   public:
    explicit AcceptWatcher(Engine& engine) : engine_(engine) {}
    void onEvent() override { engine_.acceptPoked_ = true; }

   private:
    Engine& engine_;
  };

  /// What a pass learns from all jobs.
  struct Survey {
    bool moved = false;
    bool waiting = false;    ///< a job waits for the kernel or the peer
    bool blindWork = false;  ///< likewise, on a network without descriptors
    int32_t receivers = 0;   ///< running
    int32_t settingUp = 0;
  };

  explicit Engine(std::shared_ptr<net::Network> network);
  void add(Job* job);
  /// Under the lock: forgets jobs that are about to be destroyed.
  void forget(const std::vector<std::unique_ptr<Job>>& jobs);

  bool pass();
  void adopt();
  /// Whether connections being set up are to be looked at although no event came for them.
  bool timeToLook();
  void noteMove();
  void wakeSleepers();
  Nanoseconds longestSleep(Nanoseconds wanted) const;

  // The engine's thread, in watch.cc.
  Status startThread(bool isNamed);
  void run();
  bool runKicked();
  void watchQuietly(uint64_t& seenPasses, int64_t& tickMs);

  const std::shared_ptr<net::Network> network_;
  const bool blind_;  ///< the network has no descriptors
  Poller poller_;
  Bell sleeperBell_;  ///< rings for the one who sleeps on the descriptors
  Bell threadBell_;   ///< rings for the engine's thread
  AcceptWatcher acceptWatcher_{*this};

  std::mutex mutex_;  ///< the pass: protects the jobs and what follows
  std::vector<Job*> jobs_;
  bool acceptPoked_ = false;
  Survey survey_;  ///< of the last pass that saw all jobs
  uint32_t sinceHarvest_ = 0;
  std::chrono::steady_clock::time_point nextLook_;

  alignas(64) std::atomic<int32_t> claims_{0};     ///< who wants the lock for sure
  std::atomic<bool> busy_{false};                  ///< a hint that the lock is taken: written by the holder, relaxed
  alignas(64) std::atomic<uint64_t> passes_{0};    ///< written under the lock
  std::atomic<uint64_t> moves_{0};                 ///< passes that moved something (seq_cst), against sleeping_ (seq_cst)
  std::atomic<int32_t> sleeping_{0};               ///< threads in progressOrWait that are about to sleep
  std::atomic<bool> eventsWait_{false};            ///< a sleeper was woken by the descriptors: a hint to the next pass, relaxed
  std::atomic<int32_t> settingUp_{0};              ///< jobs without connection: written under the lock, read for the length of a sleep
  std::atomic<bool> blindWork_{false};             ///< jobs of a network without descriptors have data under way: likewise

  std::mutex inboxMutex_;  ///< held for a push
  std::vector<Job*> inbox_;
  std::atomic<bool> hasInbox_{false};  ///< add() (release); pairs with the acquire in adopt()

  std::mutex sleepMutex_;  ///< who sleeps on the descriptors
  std::condition_variable sleepers_;
  bool leader_ = false;

  std::atomic<uint64_t> kicks_{0};           ///< kick() (seq_cst), against threadSleeps_ (seq_cst)
  std::atomic<bool> threadSleeps_{false};    ///< the engine's thread
  std::atomic<bool> stop_{false};            ///< destructor (seq_cst); the thread reads it
  std::thread thread_;
};

}  // namespace tutti::progress
