// Ranks as processes of this host: children of the test that run a body, are stopped or killed, and are asked how they ended.
//
// Owner: the test (ProcessRanks), on a process without threads that has never used the library: it forks. Each child has a Self, used
// by the thread that runs the body.
// 1. Children have descriptors 0 to 2 and no others. What they print, and the failures of their expectations, is their text.
// 2. A child whose expectations hold ends with 0, one whose expectations fail with 1. A child ends at the latest with its parent. That
//    nothing is left of its communicators, no process, thread, descriptor or shared memory, is one of the expectations.
// 3. Stages order things between children and the test: small numbers that only grow.
// 4. The destructor kills, by its number, every child that is left.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "tutti.h"

namespace tutti::faults {

/// How a child ended.
struct Ended {
  bool byItself = false;  ///< in time, by its own exit
  int code = -1;          ///< its exit code; of one that a signal ended: the signal, negative
  std::string text;
};

class ProcessRanks {
 public:
  static constexpr int kMost = 16;
  static constexpr int kNumbers = 16;
  static constexpr int kIds = 8;
  class Self;
  using Body = std::function<void(Self&)>;

  /// Starts `count` children that all run `body`.
  ProcessRanks(int count, const Body& body);
  ~ProcessRanks();
  ProcessRanks(const ProcessRanks&) = delete;
  ProcessRanks& operator=(const ProcessRanks&) = delete;

  /// Waits until the child has reached a stage; false after 20 s, or when it ended before.
  bool awaitStage(int child, int stage);
  bool awaitStageOfAll(int stage, std::initializer_list<int> except = {});
  /// Lets children go on that wait for it.
  void allow(int stage);
  void signal(int child, int number);
  /// SIGKILL, and until it is gone.
  void kill(int child);
  pid_t pid(int child) const { return pids_[static_cast<size_t>(child)]; }
  /// What a child has noted.
  int64_t number(int child, int which) const;
  /// Waits for its end; the same answer again later.
  const Ended& end(int child, double seconds = 30);
  /// Every child but these ends by itself and well; failures of the others are this test's.
  void expectAllWell(std::initializer_list<int> except = {}, double seconds = 30);

 private:
  struct Shared;
  friend class Self;
  bool look(int child);
  std::string textOf(int child) const;
  [[noreturn]] void runChild(int child, const Body& body);

  Shared* shared_;  // mapped by all
  std::vector<pid_t> pids_;
  std::vector<int> texts_;  // files
  std::vector<bool> gone_;
  std::vector<Ended> ends_;
};

/// A child's own view.
class ProcessRanks::Self {
 public:
  Self(Shared* shared, int index, int count) : shared_(shared), index_(index), count_(count) {}

  int index() const { return index_; }
  int count() const { return count_; }
  void reach(int stage);
  /// Until the test allows it.
  void awaitAllowed(int stage);
  /// Until another child has reached it.
  void awaitStage(int child, int stage);
  /// All children meet at this stage, but these.
  void meet(int stage, std::initializer_list<int> except = {});
  /// For the test and for other children to read.
  void note(int which, int64_t number);
  int64_t number(int child, int which) const;
  /// A unique id that all children share; child `maker` makes it when it asks first.
  ncclUniqueId id(int which = 0, int maker = 0);
  /// The next of a row of ids, made by child 0; all children take each of them.
  ncclUniqueId freshId();
  /// The body ends while communicators of it live: what they hold is not left over.
  void endsInTheMiddle() { isInTheMiddle_ = true; }
  bool isInTheMiddle() const { return isInTheMiddle_; }

 private:
  Shared* const shared_;
  const int index_;
  const int count_;
  int freshIds_ = 0;
  bool isInTheMiddle_ = false;
};

/// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count(); }

 private:
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

/// What of the calling process could leak.
struct Footprint {
  int64_t descriptors = 0;
  int64_t threads = 0;
  int64_t mappings = 0;
  int64_t residentKiB = 0;
  int64_t virtualKiB = 0;
  int64_t sharedKiB = 0;  ///< in memfds that it has open: what no process alone owns
  static Footprint now();
  /// Once threads that end and descriptors that close have done so.
  static Footprint settled();
};

#if defined(TUTTI_SANITIZED)
inline constexpr double kSlow = 10;
#else
inline constexpr double kSlow = 1;
#endif
/// What "at once" means here: how long a survivor may take to hear of a death, and an abort to return.
inline constexpr double kPromptSeconds = kSlow;

/// Makes or fails the child's test: a communicator of one rank for each child.
ncclComm_t joinAll(ProcessRanks::Self& self, int id = 0);
/// An all-reduce of `count` ints over `ranks` ranks, checked; the result code.
ncclResult_t sumOnce(ncclComm_t comm, int ranks, size_t count = 1000);
/// All-reduces until one does not succeed; its code.
ncclResult_t sumUntilError(ncclComm_t comm, size_t count);
/// Each of `ranks` sends `count` ints to the next one, in a group; the first code that is not ncclSuccess.
ncclResult_t passOn(ncclComm_t comm, int rank, int ranks, const int* in, int* out, size_t count);
/// The verdict as tuttiCommGetVerdict writes it.
std::string verdictOf(ncclComm_t comm);
/// ncclCommAbort, which must be prompt.
void abortPromptly(ncclComm_t comm);

}  // namespace tutti::faults
