// Whether what one GPU stores in another one's memory arrives there, whole and in order. Plain views and the steps of both sides, the same
// on host and device; the host owns the memory behind them.
//
// Two kernels, one on each GPU, run at the same time and write to each other as pipes do: lines of plain data, a fence, a flag. Each waits
// for the other's flag, looks whether all data is there by then, and in the end reads back what it wrote.
//   slots    in a device's memory, one for each peer: the peer writes, the owner reads; zero before
//   here     in host memory, which all devices see: each side sets its own (relaxed) and polls the other's (relaxed), so that a side that
//            comes late is no fault of the path between them
//   report   in host memory: the kernel writes it and then its `end` (after a fence); the host polls `end` (acquire)
// 1. Data of a round is written only when the round before has been seen: two banks take turns, and none is written while it is looked at.
// 2. A side that finds wrong data goes on, so that the other does not find silence instead.
// 3. The kernel ends by itself: meetNs for the other side to come, then timeoutNs for each flag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/macros.h"

namespace tutti::exec::cuda {

inline constexpr int kProbeLines = 8;
inline constexpr int kProbeWords = kProbeLines * 16;
inline constexpr uint64_t kProbeRounds = 8;
inline constexpr int kProbeThreads = 64;
/// Of a launch; each has a block.
inline constexpr int kMostProbes = 16;

struct ProbeSlot {
  alignas(128) uint64_t flag;
  alignas(128) uint64_t words[2][kProbeWords];
};
static_assert(sizeof(ProbeSlot) == 128 + 2 * kProbeLines * 128);

enum class ProbeEnd : uint32_t {
  None,
  Passed,
  Failed,
  Unmet,  ///< the other side did not come in time: nothing is known of the path
};
enum class ProbeFault : uint32_t {
  None,
  NoFlag,         ///< none came in time
  WrongData,      ///< it came before the data, or the data is not what was written
  WrongReadBack,  ///< what this side wrote is not what it reads from the peer's memory
};

struct alignas(128) ProbeReport {
  ProbeEnd end;
  ProbeFault fault;
  uint64_t round;  ///< from 1; what follows is for wrong data alone
  uint64_t word;
  uint64_t expected;
  uint64_t seen;
};

struct alignas(128) ProbeDesk {
  uint32_t here;
  ProbeReport report;
};

/// What one side has for one peer; addresses are those of its device.
struct ProbePair {
  int32_t rank = 0;
  int32_t peer = 0;
  ProbeSlot* own = nullptr;
  ProbeSlot* theirs = nullptr;  ///< in the peer's memory
  ProbeDesk* desk = nullptr;
  const uint32_t* there = nullptr;  ///< `here` of the peer
  bool spoils = false;              ///< writes a wrong word, to see what follows from it
};

struct ProbeLaunch {
  const uint32_t* abort = nullptr;  ///< in host memory: not 0 ends all waits
  uint64_t meetNs = 0;
  uint64_t timeoutNs = 0;
  int32_t pairs = 0;
  ProbePair pair[kMostProbes];
};
static_assert(std::is_trivially_copyable_v<ProbeLaunch> && sizeof(ProbeLaunch) <= 4096);

/// What `writer` writes for `reader`: no word comes twice, so that one of an earlier round is noticed.
TUTTI_HD constexpr uint64_t probeWord(int32_t writer, int32_t reader, uint64_t round, int word) {
  uint64_t x = (static_cast<uint64_t>(writer) << 48) ^ (static_cast<uint64_t>(reader) << 32) ^ (round << 16) ^ static_cast<uint64_t>(word);
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15U;  // both steps can be undone, so different ones stay different
  return x ^ (x >> 29);
}

/// One side of a pair, carried out by threads that a Side stands for: thread() of threads(), any() (a barrier: whether any thread said
/// so), claim() (once for all of them), loads, stores, fence(), nowNs() and pause().
template <class Side>
class ProbeRun {
 public:
  TUTTI_HD ProbeRun(const ProbeLaunch& launch, const ProbePair& pair, Side& side) : launch_(launch), pair_(pair), side_(side) {}

  TUTTI_HD void run() {
    if (side_.thread() == 0) side_.store(&pair_.desk->here, 1U);
    if (!await(launch_.meetNs, [this] { return side_.load(pair_.there) != 0; })) return end(ProbeEnd::Unmet);
    for (uint64_t round = 1; round <= kProbeRounds; ++round) {
      write(round);
      if (!await(launch_.timeoutNs, [&] { return side_.loadAcquire(&pair_.own->flag) >= round; })) {
        if (side_.thread() == 0 && side_.claim()) note(ProbeFault::NoFlag, round, 0, 0, 0);
        return end(ProbeEnd::Failed);
      }
      compare(pair_.own, pair_.peer, pair_.rank, round, ProbeFault::WrongData);
    }
    compare(pair_.theirs, pair_.rank, pair_.peer, kProbeRounds, ProbeFault::WrongReadBack);
    end(isWrong_ ? ProbeEnd::Failed : ProbeEnd::Passed);
  }

 private:
  TUTTI_HD void write(uint64_t round) {
    for (int w = side_.thread(); w < kProbeWords; w += side_.threads()) {
      const bool isSpoilt = pair_.spoils && round == kProbeRounds / 2 && w == kProbeWords / 2;
      side_.storeWeak(&pair_.theirs->words[round % 2][w], probeWord(pair_.rank, pair_.peer, round, w) ^ (isSpoilt ? 1 : 0));
    }
    (void)side_.any(false);
    if (side_.thread() != 0) return;
    side_.fence();
    side_.store(&pair_.theirs->flag, round);
  }

  TUTTI_HD void compare(const ProbeSlot* slot, int32_t writer, int32_t reader, uint64_t round, ProbeFault fault) {
    bool isWrong = false;
    for (int w = side_.thread(); w < kProbeWords; w += side_.threads()) {
      const uint64_t expected = probeWord(writer, reader, round, w);
      const uint64_t seen = side_.loadWeak(&slot->words[round % 2][w]);
      if (seen == expected) continue;
      isWrong = true;
      if (side_.claim()) note(fault, round, static_cast<uint64_t>(w), expected, seen);
    }
    isWrong_ = side_.any(isWrong) || isWrong_;
  }

  /// One thread tries; all go on when it has ended.
  template <class Attempt>
  TUTTI_HD bool await(uint64_t limitNs, const Attempt& attempt) {
    constexpr uint32_t kTriesPerLook = 64;
    bool gaveUp = false;
    if (side_.thread() == 0) {
      const uint64_t begun = side_.nowNs();
      for (uint32_t tries = 1; !gaveUp && !attempt(); ++tries) {
        side_.pause();
        gaveUp = tries % kTriesPerLook == 0 && (side_.nowNs() - begun > limitNs || side_.load(launch_.abort) != 0);
      }
    }
    return !side_.any(gaveUp);
  }

  TUTTI_HD void note(ProbeFault fault, uint64_t round, uint64_t word, uint64_t expected, uint64_t seen) {
    ProbeReport& report = pair_.desk->report;
    report.fault = fault;
    report.round = round;
    report.word = word;
    report.expected = expected;
    report.seen = seen;
  }

  TUTTI_HD void end(ProbeEnd how) {
    (void)side_.any(false);  // whoever notes has done so
    if (side_.thread() != 0) return;
    side_.fence();
    side_.store(reinterpret_cast<uint32_t*>(&pair_.desk->report.end), static_cast<uint32_t>(how));
  }

  const ProbeLaunch& launch_;
  const ProbePair& pair_;
  Side& side_;
  bool isWrong_ = false;
};

}  // namespace tutti::exec::cuda
