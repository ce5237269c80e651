// Calls on buffers that peers have mapped, in symmetric windows or lent: which ones go that way, and how. Copies of the engines between two
// kernels (exec/cuda/copies.h), or one kernel of one block or of several (exec/cuda/moved.h), where bytes are only moved; one kernel whose
// blocks combine what lies there (exec/cuda/mapped.h) where they are reduced, or copies of the engines with such kernels beside them.
//
// Owner: DeviceRank. Used by the thread that uses the communicator, but isIdle(), which any thread may call.
// 1. All ranks take this way for a call, or none does, and no rank asks another one. That is decided from what all ranks have alike: the
//    call, the settings, the constants, and that this rank's output (of a reduce-scatter its input, of an all-reduce both) lies in a window
//    that all of them have registered as symmetric, which promises that the others' lie at the same place of theirs
//    (transport/device/user_windows.h). Where a program breaks the promise, kernels or boards notice, and the communicator has failed;
//    copies still go to where the promise says, inside the windows.
// 2. Copies: each rank writes what it has into the peers' outputs: all-gather, all-to-all (whose input has to lie in such a window too, not
//    upon the output, because a peer writes to the output before this rank has read all of its input) and broadcast (the root to all
//    others). Of scatter, gather and messages no rank knows where the other side's buffer is: they go this way where buffers are lent (8).
//    What is little one block moves instead, and what takes engines more than 6% longer several do; engines and blocks say the same to the
//    peers, so here ranks may differ (but for 9).
// 3. Blocks: each rank combines a share (all-reduce, whose input and output both have to lie in such windows) or its chunk
//    (reduce-scatter, whose input has to), reads all ranks' contributions where they lie, and of an all-reduce writes the results to all.
//    A program finds its peers reading its input for as long as the call is under way, as with NCCL's symmetric windows.
// 4. Carried: of a large all-reduce engines bring each rank's contributions to those who combine them, into outputs that no result has come
//    to yet, so no memory of the library's is taken; few blocks combine one part while the engines carry others; then the engines bring
//    the results to all. Not in place, where the input takes the output's room. All ranks do so or none does: they count otherwise, and
//    notice. Outputs of a call that fails may hold what others have contributed.
// 5. Copies go in the order of rank + step. Where all ranks send and pieces are large they follow one another, so that no two ranks write
//    to the same peer; others are each on a stream of its own, forked from the caller's by an event and joined by others:
//    captured, they are branches of the caller's graph. A stream in a capture that has not ended is not used by anybody else; there are as
//    many sets of streams as captures at a time, and one. But for the first call of each, nothing is allocated or mapped.
// 6. Relayed: a large broadcast of more than two ranks that engines carry goes from rank to rank, part by part. All ranks do so or none
//    does, as in 4.
// 7. Same bits as kernels over windows of the library's own: bytes are moved, or combined in rank order, in whatever numbers and
//    alignments.
// 8. Lent: the buffers of a captured call, which all ranks capture alike (as with NCCL), are made known to the peers and mapped by them
//    when it is captured, where a call like this one is faster for it and every rank is a process of its own: one thread that captures for
//    several ranks in turns would wait for itself. Where a rank's memory cannot be shared no rank goes that way. Plain memory counts too,
//    since a graph may only be launched as long as its buffers are there. What is mapped stays until the graph is gone and the rank's
//    kernels have ended. Then it goes with the next call; plain memory behind the next call that is captured, or with the communicator: to
//    let go of it waits for all that runs on the GPU. Of a message that concerns its two ranks alone, which need not both capture it
//    (transport/device/message_loans.h).
// 9. Around what engines move stand stages: Begin, meetings, End (exec/cuda/copies.h). Kernels of one block carry them out, or the streams
//    themselves (transport/device/stages.h), where much is moved; of a call that reduces always kernels, of messages always streams, since
//    kernels count calls that all ranks make. Whether streams do is the same on all ranks, since kernels do not hear what streams say: it
//    depends on nothing of a rank's own.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/devices.h"
#include "core/call.h"
#include "plan/device_plan.h"
#include "transport/device/endpoint.h"

namespace tutti::comm {

/// What the choice of a way depends on beside the call; the same on all ranks.
struct BufferTraits {
  bool isInPlace = false;     ///< input and output are the same memory. Of no matter but for an all-reduce
  bool hasFinePages = false;  ///< of some rank: engines are slower there
  bool isLent = false;        ///< nobody has asked for few blocks
};

/// What such a call knows of itself.
struct WindowCall {
  Call call;
  const void* in = nullptr;
  void* out = nullptr;
  /// Of what peers have to find alike: the output, of a reduce-scatter the input; null: the call goes another way.
  std::shared_ptr<const transport::device::UserWindow> window;
  std::shared_ptr<const transport::device::UserWindow> inWindow;  ///< of the input as well: an all-reduce
  ReduceOp op = ReduceOp::Sum;
  Scaling scaling;

  BufferTraits traits() const {
    using transport::device::WindowKind;
    const bool hasFinePages = (window != nullptr && window->hasFinePages) || (inWindow != nullptr && inWindow->hasFinePages);
    return {in == out, hasFinePages, window != nullptr && window->kind != WindowKind::Symmetric};
  }
};

/// Bytes that a rank gives to one other.
inline uint64_t chunkBytes(const Call& call) { return call.count * sizeOf(call.type); }

/// A call's signature as ranks that go this way post it, so that those that go another notice; and back, for texts.
uint64_t signatureOnWindows(const Call& call);
bool hasCopyMark(uint64_t signature);
uint64_t withoutCopyMark(uint64_t signature);
/// Whether calls of a kind go this way only where ranks lend each other their buffers.
bool goesOnlyLent(Collective collective);

inline driver::cuda::DevicePtr addressOf(const void* pointer) { return reinterpret_cast<driver::cuda::DevicePtr>(pointer); }

class DeviceWindows {
 public:
  DeviceWindows(Device& device, exec::cuda::Executor& executor, transport::device::Endpoint& endpoint, const plan::DeviceSettings& settings,
                Rank rank, int32_t ranks)
      : device_(device), executor_(executor), endpoint_(endpoint), settings_(settings), rank_(rank), ranks_(ranks) {}

  /// Why no call like this one can go this way, whatever its buffers; empty: some can.
  std::string obstacle(Collective collective) const;
  double estimateUs(const Call& call, const BufferTraits& traits) const;
  /// Who carries out a call that reduces nothing: one block where engines would not have begun, several where they are faster still.
  enum class Mover : uint8_t { Engines, Block, Blocks };
  Mover moverOf(const Call& call, const BufferTraits& traits) const;
  /// Whether engines carry contributions and results of a call that reduces, and blocks only combine; otherwise blocks do all of it.
  bool isCarried(const Call& call, const BufferTraits& traits) const;
  /// Whether receivers pass on what engines move.
  bool isRelayed(const Call& call, const BufferTraits& traits) const;
  /// How long it takes, and on how many blocks.
  tune::Way wayOf(const Call& call, const BufferTraits& traits) const;
  /// Whether a call that may go this way does, if it goes the way `kernel` otherwise.
  bool isTaken(const Call& call, const BufferTraits& traits, const tune::Way& kernel) const;
  /// That combine what is not carried, or move together.
  int32_t blocksOf(const Call& call) const;
  /// How a call is carried: shares in how many parts, which so many blocks combine, and how long it takes.
  struct CarriedShape {
    int32_t parts = 0;
    int32_t blocks = 0;
    double us = 0;
  };
  /// The one that weighs least.
  CarriedShape carriedShape(const Call& call) const;
  /// Sets the windows of `made` where the call goes this way. `kernel`: its way otherwise. InvalidUsage: the memory of a window
  /// that holds the buffers has been freed.
  Status choose(WindowCall& made, const tune::Way& kernel) const;
  /// Whether ranks lend each other the buffers of a captured call like this one, if it has no factors of its own: the same on all ranks.
  bool mayLend(const Call& call, const tune::Way& kernel) const;
  /// The windows of a call's buffers, each of one call: the output, of a reduce-scatter the input; and of an all-reduce both. Of a gather
  /// the root's alone, of a scatter those of all others. They have to be settled.
  struct Loan {
    transport::device::UserWindows::Ref first;
    transport::device::UserWindows::Ref second;

    bool goesSlowly() const { return (first != nullptr && first->goesSlowly()) || (second != nullptr && second->goesSlowly()); }
  };
  /// `obstacle`: why this rank cannot take that way; its peers hear so, too.
  Loan lend(const WindowCall& made, Status obstacle = {}) const;
  /// Sets the windows of `made` where all ranks have settled that they can be used, and the call goes this way.
  void chooseLent(WindowCall& made, const Loan& loan, const tune::Way& kernel) const;
  /// What a launched call is known by (LaunchBook).
  uint64_t nameOf(const WindowCall& made) const;
  /// Its kernels, and copies between them, behind what is on `stream`, and before what follows there. Under a current context.
  Status launch(const WindowCall& made, driver::cuda::Stream stream);
  /// One message or two: one to send, and one to receive.
  Status launchMessages(std::span<const WindowCall> messages, driver::cuda::Stream stream);
  /// A stream beside another one.
  struct Beside {
    driver::cuda::Stream stream;
    driver::cuda::Event done;
  };
  /// Behind what is on `stream`. What comes onto it is before what follows on `stream` once they are joined.
  Result<Beside> fork(driver::cuda::Stream stream);
  Status join(const Beside& beside, driver::cuda::Stream stream);

  /// Whether no copy is under way outside graphs.
  bool isIdle();
  /// What graphs or copies may still use.
  std::vector<driver::cuda::OwnedStream> takeStreams();

 private:
  struct Piece {
    driver::cuda::DevicePtr to = 0;
    driver::cuda::DevicePtr from = 0;
    uint64_t bytes = 0;
    bool isOwn = false;  ///< stays on this rank
  };
  struct Lane {
    driver::cuda::OwnedStream stream;
    driver::cuda::OwnedEvent done;
  };
  struct Lanes {
    driver::cuda::OwnedEvent forked;
    std::vector<Lane> lane;
  };
  class Carrier;
  static constexpr uint64_t kMappedBytes = 16384;  ///< less for a block is not worth one
  static constexpr int32_t kLeastCarriedParts = 2;  ///< of a share: one is combined while others are carried
  static constexpr int32_t kMostCarriedParts = 4;
  double weigh(const tune::Way& way) const { return tune::weighed(settings_.machine, way); }
  uint64_t outBytes(const Call& call) const;
  bool goInTurns(const Call& call) const;
  double straightUs(const Call& call) const;
  uint64_t carriedShare(const Call& call) const;
  double copyUs(const Call& call) const;
  double directUs(const Call& call) const;
  double relayedUs(const Call& call) const;
  int32_t relayedParts(const Call& call) const;
  double movedUs(const Call& call) const;
  double movedTogetherUs(const Call& call) const;
  uint64_t shareElements(const Call& call) const;
  Status chooseCopies(WindowCall& made) const;
  Status chooseMapped(WindowCall& made) const;
  std::vector<Piece> pieces(const WindowCall& copy) const;
  uint64_t offsetOf(const WindowCall& made) const;
  exec::cuda::MappedLaunch mapped(const WindowCall& made) const;
  uint32_t placeOf(const WindowCall& made) const;
  Status checkBuffer(const transport::device::UserWindow& window, driver::cuda::DevicePtr address) const;
  Result<Lanes*> lanesFor(driver::cuda::Stream stream, size_t count);
  Status addLanes(Lanes& lanes, size_t count);
  /// Whether streams carry out a call's stages themselves, of whose data blocks touch nothing.
  bool hasStreamStages(const Call& call, const BufferTraits& traits) const;
  bool suitsStreams(const Call& call) const;
  transport::device::StageCall stageCall(uint64_t signature, uint32_t place) const;
  transport::device::StageCall messageStage(const WindowCall& made) const;
  uint64_t sentBytes(const Call& call) const;
  exec::cuda::CopyLaunch copyLaunch(const WindowCall& made) const;
  /// One of a call that engines carry out; `meeting`: how many of its meetings came before.
  Status stage(const exec::cuda::CopyLaunch& launch, exec::cuda::CopyStage which, int32_t meeting, bool onStream,
               driver::cuda::Stream stream);
  static bool suitsABlock(std::span<const Piece> pieces);
  Status moveAll(const exec::cuda::CopyLaunch& launch, const WindowCall& made, std::span<const Piece> pieces, int32_t blocks,
                 driver::cuda::Stream stream);
  Status copyAll(std::span<const Piece> pieces, bool goInTurns, driver::cuda::Stream stream);
  Status carryAll(const exec::cuda::CopyLaunch& launch, const WindowCall& made, driver::cuda::Stream stream);
  Status relay(exec::cuda::CopyLaunch launch, const WindowCall& made, driver::cuda::Stream stream);

  Device& device_;
  exec::cuda::Executor& executor_;
  transport::device::Endpoint& endpoint_;
  const plan::DeviceSettings& settings_;
  const Rank rank_;
  const int32_t ranks_;
  std::mutex mutex_;                           ///< protects the list, which isIdle() reads
  std::vector<std::unique_ptr<Lanes>> lanes_;  // sets of streams
};

}  // namespace tutti::comm
