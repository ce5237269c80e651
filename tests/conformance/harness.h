// N ranks as N threads of one process, each with its communicator; the bodies of tests run on all of them at once.
//
// Owner: the test. The main thread creates, runs and destroys; bodies run on the rank threads.
// 1. A body that makes no progress for kStuckSeconds ends the process with a text that says where it was: a hang is a failure.
// 2. Every communicator is created, used and destroyed by the thread of its rank.
#pragma once

#include <atomic>
#include <barrier>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tutti.h"

namespace tutti::conformance {

inline constexpr int kStuckSeconds = 60;

/// A small, fast, seeded generator (splitmix64); the same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  /// Uniform in [0, bound), bound >= 1.
  uint64_t below(uint64_t bound) { return next() % bound; }
  /// Uniform in [low, high).
  double between(double low, double high);

 private:
  uint64_t state_;
};

uint64_t mix(uint64_t a, uint64_t b);
/// FNV-1a of the bytes, continued from `hash`.
uint64_t hashBytes(const void* data, size_t bytes, uint64_t hash = 0xcbf29ce484222325ull);

/// Sets an environment variable for a scope. Only while no rank thread runs.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const std::string& value);
  ~ScopedEnv();
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  const char* name_;
  std::string before_;
  bool wasSet_ = false;
};

/// TUTTI_TEST_PLACES=1: even ranks run on a CPU with an even number, odd ones on one with an odd number, which
/// tests/data/hosts/two_nodes.xml has on different NUMA nodes. False also where there are no two such CPUs.
bool placesRanks();

class RankThreads {
 public:
  using Body = std::function<void(int rank, ncclComm_t comm)>;

  /// Creates `ranks` threads, each with its rank of one new communicator. `algorithms` is TUTTI_ALGO while they are created.
  explicit RankThreads(int ranks, const std::string& algorithms = "") : RankThreads(ranks, algorithms, nullptr) {}
  /// What `enter` returns lives on the thread of the rank, from before its communicator to after it.
  using Enter = std::function<std::shared_ptr<void>(int rank)>;
  RankThreads(int ranks, const std::string& algorithms, Enter enter);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int ranks() const { return ranks_; }
  bool created() const { return failures_.load() == 0; }

  /// Runs the body on every rank's thread and waits for all.
  void run(const Body& body);
  /// All rank threads meet here; called by every rank from within a body.
  void meet() { barrier_.arrive_and_wait(); }
  /// Says what happens now, for the report of a hang; by one rank.
  void announce(std::string what);

 private:
  void loop(int rank, ncclUniqueId id);
  void waitIdle();

  const int ranks_;
  const Enter enter_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const Body* body_ = nullptr;
  uint64_t generation_ = 0;
  int busy_ = 0;
  bool stopping_ = false;
  std::string announced_;
  std::atomic<uint64_t> progress_{0};
  std::atomic<int> failures_{0};
  std::barrier<> barrier_;
  std::vector<std::thread> threads_;
};

/// The algorithm that tuttiExplain names for a call; "error: …" when it refuses.
std::string explainAlgorithm(ncclComm_t comm, const char* collective, size_t count, ncclDataType_t type, ncclRedOp_t op, int root);

/// The channels that it names for a call; 0 when it refuses.
int explainChannels(ncclComm_t comm, const char* collective, size_t count, ncclDataType_t type, int root);

/// Memory with guard zones before and behind it; filled with poison.
class GuardedBuffer {
 public:
  static constexpr size_t kGuard = 64;
  static constexpr unsigned char kPoison = 0xa5;

  /// `bytes` usable ones, beginning `misalignment` bytes after a 64-byte boundary.
  GuardedBuffer() = default;
  void resize(size_t bytes, size_t misalignment);

  std::byte* data() { return storage_.data() + begin_; }
  const std::byte* data() const { return storage_.data() + begin_; }
  size_t size() const { return bytes_; }
  bool guardsIntact() const;

 private:
  std::vector<std::byte> storage_;
  size_t begin_ = 0;
  size_t bytes_ = 0;
};

/// Runs the body on a thread of its own and ends the process when it takes longer than `seconds`.
void runWithin(double seconds, const std::string& what, const std::function<void()>& body);

}  // namespace tutti::conformance
