// One block of a launch, played on the host: a state that goes on until it would wait, over the pipes, windows and hand-overs that a kernel
// would use.
//
// Owner: HostLaunch (host_kernels.cc); one thread. What peers see is written and read with the orders that pipe.h, window.h and verdict.h
// state.
// 1. A piece is moved all at once, when everything that it needs is there: nothing is half done between two calls of advance().
// 2. After a wait that gave up, the block does no more of that work and forgets what it counted.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exec/cuda/launch.h"
#include "exec/host/reduce/reduce.h"

namespace tutti::exec::cuda {

/// How long a wait has lasted, and whether it goes on: as wait.cuh has it.
class HostWait {
 public:
  struct Note {
    Waiting waiting = Waiting::None;
    int32_t rank = 0;
    int32_t peer = 0;
    int32_t channel = 0;
    int32_t step = 0;
    uint64_t expected = 0;
    uint64_t seen = 0;
  };
  /// Whether to give up; then it is reported, or somebody else has. Who asks for something else begins anew.
  bool givesUp(const WaitControl& control, const Note& note);
  void end() { *this = HostWait(); }
  /// All but the state.
  static void describe(const WaitControl& control, Verdict& to, const Note& note, uint64_t waitedNs);
  static void report(const WaitControl& control, const Note& note, uint64_t waitedNs = 0, Verdict::State as = Verdict::Complete);

 private:
  Note latest_;
  uint32_t tries_ = 0;
  uint32_t since_ = 0;  ///< ticks; 0: it has not looked yet
  uint64_t foreign_ = 0;
};

/// Tells all peers what the launch is.
void postOnBoards(const WaitControl& control);

class HostBlock {
 public:
  HostBlock(KernelId kernel, const Launch& launch, int32_t block);
  /// False: it waits, or has ended.
  bool advance();
  bool hasEnded() const { return work_ == nullptr; }
  /// What the launch breaks of the contracts of work.h; empty: nothing.
  const std::string& fault() const { return fault_; }

 private:
  /// What one piece combines or moves.
  struct Source {
    const std::byte* at = nullptr;
    uint64_t flag = 0;  ///< of a flagged one
    int32_t peer = -1;  ///< -1: plain memory
  };
  struct Target {
    std::byte* at = nullptr;
    uint64_t flag = 0;
    bool isFlagged = false;
  };
  struct Job {
    std::vector<Source> sources;
    std::vector<Target> targets;
    uint64_t bytes = 0;
    uint32_t scaled = 0;
    bool reduces = false;
    bool isLast = false;
    bool rewrites = false;  ///< flags everywhere, needed or not
    uint64_t room = 0;      ///< memory of a flagged target
  };
  enum class Look { Ready, Waits, GaveUp };

  void beginWork();
  void endWork();
  void nextStep();
  Look runStep(const ProgramStep& s);
  Look runPipe(const ProgramStep& s);
  Look runWindow(const ProgramStep& s);
  Look give(const ProgramStep& s);
  Look take();

  const ProgramHead& head() const;
  const ProgramStep& step() const;
  algo::Range range(int32_t chunk) const { return work_->geometry.range(chunk, channel_, slice_); }
  uint64_t elementBytes() const { return sizeOf(work_->type); }
  std::byte* place(algo::Buffer buffer, uint64_t offset) const;
  Protocol protocol() const { return kernelInfo(kernel_).protocol; }
  bool isFlagged() const { return protocol() != Protocol::Simple; }

  PipeEnd* findEnd(int32_t peer, uint8_t port, bool sends);
  uint64_t& doneOf(PipeEnd* end);
  Look await(bool isThere, Waiting waiting, int32_t peer, uint64_t expected, uint64_t seen);
  Look awaitCounter(const uint64_t* word, uint64_t least, Waiting waiting, int32_t peer);
  Look awaitFlags(const Job& job);
  bool hasFlags(const Source& source, uint64_t bytes, uint64_t& seen);
  void carryOut(const Job& job);

  const KernelId kernel_;
  const Launch& launch_;
  const int32_t block_;
  int32_t next_ = 0;            // work
  const Work* work_ = nullptr;  // null: all done
  int32_t channel_ = 0;         // of the geometry
  int32_t pipeChannel_ = 0;
  int32_t lane_ = 0;
  Reduction reduction_;
  host::ReduceFn reduce_ = nullptr;
  int32_t slice_ = 0;
  int32_t step_ = 0;
  uint64_t at_ = 0;  // bytes of a pipe step's slice that are done
  uint64_t epoch_ = 0;
  bool usesWindow_ = false;
  std::map<int32_t, uint64_t> given_;  // by lane
  uint64_t taken_ = 0;
  bool hasTaken_ = false;
  std::map<PipeEnd*, uint64_t> done_;
  HostWait wait_;
  const std::byte* scanned_ = nullptr;  // of which source the first cells have been seen
  uint64_t scannedCells_ = 0;
  std::string fault_;
  std::vector<std::vector<std::byte>> decoded_;
  std::vector<std::byte> result_;
};

}  // namespace tutti::exec::cuda
