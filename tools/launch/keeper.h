// Starts the ranks of `tutti run`, carries their output, answers their post and ends all of them when it is time.
//
// One thread: a loop around poll() that never blocks on anything else.
// 1. The job ends early when a rank fails, a signal comes, the time is over, or whoever called `tutti run` has gone: SIGTERM (or the
//    signal that came, and SIGTERM after a grace) to all descendants, after the grace SIGKILL, at the second signal at once.
// 2. What descendants of the ranks leave behind when the ranks have ended is ended the same way.
// 3. The first failure is told, and gives the exit code.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "launch/by_parent.h"
#include "launch/child.h"
#include "launch/descriptor.h"
#include "launch/lines.h"
#include "launch/nodes.h"
#include "launch/outlet.h"
#include "launch/run.h"

namespace tutti::launch {

/// What cannot be killed is given up after this.
inline constexpr std::chrono::milliseconds kKillTime{10'000};

class Keeper {
 public:
  /// `caller`: the reading end of a pipe whose other end closes when the calling process dies. `inherited` as that process had it.
  Keeper(const RunOptions& options, Descriptor caller, const Inherited& inherited);
  /// Does everything; the exit code of the job.
  int run();

 private:
  enum class Phase : uint8_t { Running, Ending, Killing };

  /// One of the two streams of a rank.
  struct Stream {
    Descriptor source;
    LineCutter lines;
  };
  struct Rank {
    pid_t pid = 0;  ///< 0: not started, or reaped
    Stream streams[2];
  };

  Status prepare();
  Status start();
  Status startRank(int rank);
  std::vector<std::string> environmentOf(int rank, int descriptor) const;
  /// The ranks of one node; without nodes, all ranks.
  struct Block {
    int node = 0;
    int first = 0;
    int ranks = 0;
  };
  Block blockOf(int rank) const;

  void loop();
  void addPolls(std::vector<pollfd>& polls) const;
  void readStream(Stream& stream, Outlet& outlet);
  void takeSignals();
  std::vector<std::pair<int, int>> reap();
  void takeChildren();
  void judge(int rank, int status);
  void end(int signal);
  void killAll();
  void signalAll(int signal) const;
  void checkTime();
  void flush();
  void say(const std::string& text);
  bool isOver() const;
  int exitCode() const;

  const RunOptions options_;
  const Descriptor caller_;
  Inherited inherited_;
  Descriptor signals_;
  std::vector<Rank> ranks_;
  std::vector<int> cores_;
  std::string masterPort_;
  Nodes nodes_;
  Post post_;
  Outlet outlets_[2];
  Phase phase_ = Phase::Running;
  Deadline deadline_;  ///< of the job while it runs, then of the grace, then of the killing
  int asked_ = 0;      ///< the signal by which all have been asked to end
  bool hasChildren_ = false;
  bool isCallerGone_ = false;
  int code_ = 0;  ///< of the first thing that ended the job early
};

}  // namespace tutti::launch
