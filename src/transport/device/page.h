// What the ranks of a communicator on one host tell each other about their GPU memory: a block of host memory that all of them see, and of
// which the first pages are registered with CUDA, so that kernels see them too.
//
// Lies in the hub's arena, zeroed when it is made. Each card is written by one rank before its `state` (release), and read by others after
// it (acquire); it does not change afterwards, but for those of windows of the user.
// 1. Everything makes sense after every single store: a process may die anywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "exec/cuda/probe.h"
#include "exec/cuda/verdict.h"
#include "exec/cuda/window.h"
#include "transport/device/issue_book.h"
#include "transport/device/launch_book.h"
#include "transport/device/message_book.h"
#include "transport/device/segment_server.h"

namespace tutti::transport::device {

using exec::cuda::kNumProtocols;
using exec::cuda::kNumWindows;
/// More than any algorithm uses (algo/).
inline constexpr int32_t kPorts = 8;

/// What all ranks have to have agreed on before they map each other's memory.
struct EndpointConfig {
  int32_t channels = 1;  ///< of the arrays; no port and no window has more
  int32_t pipeChannels[kNumProtocols][kPorts] = {};
  int32_t slots[kNumProtocols] = {};       ///< of a pipe
  uint64_t slotBytes[kNumProtocols] = {};  ///< of memory
  int32_t windowChannels[kNumWindows] = {};
  int32_t checks = 1;        ///< calls are compared
  int32_t copyEngines = 0;   ///< when calls are carried out by them, doubled, and 1 more if by one block where that is faster
  int32_t streamStages = 0;  ///< when streams carry out the stages around their copies
  int32_t mapped = 0;        ///< and by blocks that combine what lies in windows
  int32_t lends = 0;         ///< whether ranks lend each other the buffers of captured calls: 1, and 2: plain memory as well
  int32_t leastBlocks = 1;   ///< of a call, as the user wants
  int64_t blockPrice = 0;    ///< of a million: which way calls go on windows, and in how many parts, depends on it
  int32_t plainKernels = 0;  ///< which may be chosen of those whose protocol is Simple
  uint64_t shareBytes[kNumWindows] = {};
  friend bool operator==(const EndpointConfig&, const EndpointConfig&) = default;
};

/// Where a bank lies.
struct BankPlace {
  SegmentName segment;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

enum class CardState : uint32_t { Empty, Written };

struct alignas(64) Card {
  std::atomic<CardState> state;
  BankPlace place;
};

/// What the ranks have to give a window alike.
enum class WindowKind : uint32_t {
  Plain,        ///< registered, and used by no call
  Symmetric,    ///< registered as such
  Lent,         ///< a buffer of a captured call
  LentInPlace,  ///< which is the call's input and output
};

/// What a rank says of a window of the user (user_windows.h); written again with every second window.
struct alignas(64) UserWindowCard {
  std::atomic<uint64_t> state;  ///< 2k + 1: what follows is of window k; 2k + 2: and this rank has mapped it, or not
  BankPlace place;
  uint32_t isRefused;  ///< 1: the memory cannot be shared
  uint32_t isAbsent;   ///< 1: this rank has nothing there, and nothing is mapped of it
  WindowKind kind;
  uint32_t hasFinePages;  ///< Published::At
  uint32_t isUnmapped;    ///< 1: this rank could not map it on some other; before 2k + 2
  uint64_t message;       ///< of a captured message: its number in its direction, with those that were not captured
};

/// What a rank says of itself.
struct alignas(64) RankCard {
  std::atomic<CardState> state;
  std::atomic<uint32_t> left;  ///< 1: its kernels have ended and it maps nothing of others any more (release; pairs with Parking's acquire)
  std::atomic<CardState> surveyed;  ///< it knows what all others think of their paths to it, and may be probed (release; pairs with Survey)
  BankPlace control;                ///< on its GPU: slots of probes, counters and ends; Layout of layout.h
  uint8_t gpu[16];                  ///< of the device
  char busId[16];                   ///< "0000:1b:00.0"
  EndpointConfig config;
  Card shared;        ///< what peers touch of board and arrivals: on its GPU where all of them reach it, else on the host
  uint32_t usesHost;  ///< 1: some pair of it does; before shared.state
  Card window[kNumWindows];
  exec::cuda::SharePages cellPages[exec::cuda::kMaxLocalRanks];  ///< by writer, of its window of cells; before that one's state
  UserWindowCard userWindow[2];
  exec::cuda::Verdict endedStage;  ///< as that of the rank's kernels (WaitDesk): of its streams, claimed by its host (stages.h)
};

/// What a rank thinks of the path between its GPU and a peer's before both have tried it.
enum class Opinion : uint32_t {
  None,
  Host,    ///< there is none, or none that it may use
  Direct,  ///< nothing speaks against it, and it need not be tried (again)
  Probe,   ///< it has to be tried
};

/// What a rank says of a peer: each word once (release; pairs with the peer's Survey).
struct alignas(64) PairCard {
  std::atomic<Opinion> opinion;
  std::atomic<exec::cuda::ProbeEnd> outcome;  ///< where either side wants a probe
};

/// The part that kernels see.
struct alignas(4096) KernelPage {
  uint32_t abort;  ///< exec/cuda/verdict.h: WaitControl; Hub::stopDevices sets it
};

using exec::cuda::WaitDesk;

/// Where one rank says to another that it has come to a meeting of a call (stages.h).
struct alignas(8) StageCell {
  uint32_t word;   ///< what is said; written by the peer, taken back by the owner
  uint32_t stage;  ///< 0, or what the owner's stream waits for, packed (stages.cc): in the cell of the first rank that it waits for
};
/// What may be said of a call: leave to write, and how often ranks may meet behind it.
inline constexpr int32_t kStageMeetings = 48;
/// What one rank says to another.
struct alignas(64) StageCells {
  StageCell of[kStageMeetings];
};
inline constexpr int32_t kChannelOfStream = -1;  ///< in verdicts: it was no kernel that waited

struct PipeCards {
  Card receiver;     ///< slots
  Card sender;       ///< counters of freed slots
  BankPlace filled;  ///< the receiver's counters of filled ones; before its state
};

/// What two ranks say of the buffers of captured messages from one to the other (message_loans.h).
struct alignas(64) MessageLoanCards {
  std::atomic<uint64_t> turn;  ///< LoanTurn
  UserWindowCard sender[2];
  UserWindowCard receiver[2];
};

class Page {
 public:
  Page() = default;
  Page(std::byte* memory, int32_t ranks) : memory_(memory), ranks_(ranks) {}
  static uint64_t bytesFor(int32_t ranks) {
    return loansAt(ranks) + (ranks > exec::cuda::kMaxLocalRanks ? 0 : squared(ranks) * sizeof(MessageLoanCards));
  }
  /// What kernels see of it, from its beginning: whole pages.
  static uint64_t kernelBytes(int32_t ranks) {
    return roundUp(cellsAt(ranks) + (ranks > exec::cuda::kMaxLocalRanks ? 0 : squared(ranks) * sizeof(StageCells)), alignof(KernelPage));
  }
  KernelPage& kernel() const { return *reinterpret_cast<KernelPage*>(memory_); }
  /// What the waits of a rank's kernels are told.
  WaitDesk& waits(int32_t rank) const { return reinterpret_cast<WaitDesk*>(memory_ + sizeof(KernelPage))[rank]; }
  /// Where `rank` probes its path to `peer`.
  exec::cuda::ProbeDesk& desk(int32_t rank, int32_t peer) const {
    return reinterpret_cast<exec::cuda::ProbeDesk*>(memory_ + desksAt(ranks_))[rank * ranks_ + peer];
  }
  /// What `peer` says to `rank`.
  StageCells& cells(int32_t rank, int32_t peer) const {
    return reinterpret_cast<StageCells*>(memory_ + cellsAt(ranks_))[rank * ranks_ + peer];
  }
  RankCard& rank(int32_t rank) const { return reinterpret_cast<RankCard*>(memory_ + kernelBytes(ranks_))[rank]; }
  /// What `rank` says of `peer`.
  PairCard& pair(int32_t rank, int32_t peer) const { return reinterpret_cast<PairCard*>(memory_ + pairsAt(ranks_))[rank * ranks_ + peer]; }
  /// The pipes of a port from one rank to another.
  PipeCards& pipes(exec::cuda::Protocol protocol, int32_t port, int32_t from, int32_t to) const {
    const int32_t at = ((static_cast<int32_t>(protocol) * kPorts + port) * ranks_ + from) * ranks_ + to;
    return reinterpret_cast<PipeCards*>(memory_ + pipesAt(ranks_))[at];
  }
  LaunchBook& launches(int32_t rank) const { return reinterpret_cast<LaunchBook*>(memory_ + booksAt(ranks_))[rank]; }
  MessageBook& messages(int32_t from, int32_t to) const {
    return reinterpret_cast<MessageBook*>(memory_ + messagesAt(ranks_))[from * ranks_ + to];
  }
  /// Of messages from one rank to another; only where ranks map each other's windows.
  MessageLoanCards& messageLoans(int32_t from, int32_t to) const {
    return reinterpret_cast<MessageLoanCards*>(memory_ + loansAt(ranks_))[from * ranks_ + to];
  }
  IssueBook& issues(int32_t rank) const { return reinterpret_cast<IssueBook*>(memory_ + issuesAt(ranks_))[rank]; }
  int32_t ranks() const { return ranks_; }
  /// Of something that kernels see: bytes from the page's beginning.
  uint64_t offsetOf(const void* seen) const { return static_cast<uint64_t>(static_cast<const std::byte*>(seen) - memory_); }

 private:
  static uint64_t roundUp(uint64_t at, uint64_t unit) { return (at + unit - 1) / unit * unit; }
  static uint64_t squared(int32_t ranks) { return static_cast<uint64_t>(ranks) * static_cast<uint64_t>(ranks); }
  static uint64_t desksAt(int32_t ranks) { return sizeof(KernelPage) + static_cast<uint64_t>(ranks) * sizeof(WaitDesk); }
  static uint64_t cellsAt(int32_t ranks) {
    return roundUp(desksAt(ranks) + squared(ranks) * sizeof(exec::cuda::ProbeDesk), alignof(StageCells));
  }
  static uint64_t pairsAt(int32_t ranks) { return kernelBytes(ranks) + static_cast<uint64_t>(ranks) * sizeof(RankCard); }
  static uint64_t pipesAt(int32_t ranks) { return pairsAt(ranks) + squared(ranks) * sizeof(PairCard); }
  static uint64_t booksAt(int32_t ranks) { return pipesAt(ranks) + squared(ranks) * kNumProtocols * kPorts * sizeof(PipeCards); }
  static uint64_t messagesAt(int32_t ranks) {
    return roundUp(booksAt(ranks) + static_cast<uint64_t>(ranks) * sizeof(LaunchBook), alignof(MessageBook));
  }
  static uint64_t issuesAt(int32_t ranks) { return messagesAt(ranks) + squared(ranks) * sizeof(MessageBook); }
  static uint64_t loansAt(int32_t ranks) {
    return roundUp(issuesAt(ranks) + static_cast<uint64_t>(ranks) * sizeof(IssueBook), alignof(MessageLoanCards));
  }

  std::byte* memory_ = nullptr;
  int32_t ranks_ = 0;
};

}  // namespace tutti::transport::device
