// The stages of calls that engines carry out, by kernels or by streams (comm/device_windows.h, 9).
#include "comm/device_windows.h"

namespace tutti::comm {

using driver::cuda::Stream;
using exec::cuda::CopyStage;
using plan::When;
using transport::device::StageCall;

namespace {

/// Where all ranks send so much and more streams carry out the stages around it, and where one alone sends or is sent: such calls take no
/// longer so (docs/decisions/0077).
constexpr uint64_t kOnStreamsFrom = 24 << 20;
constexpr uint64_t kRootOnStreamsFrom = 128 << 20;
/// Of messages, which have no kernels around copies.
constexpr uint64_t kMessagesOnStreamsFrom = 8 << 20;

}  // namespace

/// Of the rank that sends most.
uint64_t DeviceWindows::sentBytes(const Call& call) const {
  return call.isMessage() ? chunkBytes(call) : static_cast<uint64_t>(ranks_ - 1) * chunkBytes(call);
}

/// A stage takes a stream some microseconds more than a kernel, and none of the caller's multiprocessors.
bool DeviceWindows::suitsStreams(const Call& call) const {
  const uint64_t least = call.isMessage() ? kMessagesOnStreamsFrom : hasRoot(call.collective) ? kRootOnStreamsFrom : kOnStreamsFrom;
  return settings_.streamStages == When::WherePossible || (settings_.streamStages == When::WhereFaster && sentBytes(call) >= least);
}

/// The same on all ranks: it depends on what is alike on all of them. Of what is passed on ranks meet once for every part.
bool DeviceWindows::hasStreamStages(const Call& call, const BufferTraits& traits) const {
  if (reduces(call.collective) || !suitsStreams(call)) return false;
  if (call.isMessage()) return true;
  if (moverOf(call, traits) != Mover::Engines) return false;
  return settings_.streamStages == When::WherePossible || !isRelayed(call, traits);
}

/// Without checks only places are compared, as by kernels.
StageCall DeviceWindows::stageCall(uint64_t signature, uint32_t place) const {
  return {endpoint_.comparesCalls() ? signature : 0, place, 0, 0};
}

/// Both sides know the window of a message by the same number, and messages of other directions have other words.
StageCall DeviceWindows::messageStage(const WindowCall& made) const {
  Call any;
  any.collective = Collective::SendRecv;
  return stageCall(signatureOnWindows(any), static_cast<uint32_t>(made.window->number));
}

uint64_t DeviceWindows::nameOf(const WindowCall& made) const {
  if (made.call.isMessage()) return transport::device::stageName(messageStage(made).word());
  const uint64_t signature = signatureOnWindows(made.call);
  if (!hasStreamStages(made.call, made.traits())) return signature;
  return transport::device::stageName(stageCall(signature, placeOf(made)).word());
}

Status DeviceWindows::stage(const exec::cuda::CopyLaunch& launch, CopyStage which, int32_t meeting, bool onStream, Stream stream) {
  if (!onStream) return executor_.copies(launch, which, stream);
  const auto room = endpoint_.stages();
  if (!room) return room.error();
  StageCall call = stageCall(launch.wait.signature, launch.place);
  call.writers = launch.writers;
  call.written = launch.written;
  driver::cuda::Driver& driver = device_.gpu->driver();
  return which == CopyStage::Begin ? room->begin(call, driver, stream) : room->meet(call, meeting, driver, stream);
}

/// Leave is given before any is waited for, and the end is told before another's is: neither message waits for the other.
Status DeviceWindows::launchMessages(std::span<const WindowCall> messages, Stream stream) {
  const auto room = endpoint_.stages();
  if (!room) return room.error();
  StageCall call;
  std::vector<Piece> pieces;
  for (const WindowCall& made : messages) {
    const StageCall own = messageStage(made);
    const uint32_t peer = uint32_t{1} << made.call.root;
    call.signature = own.signature;
    if (made.call.receives) {
      call.place = own.place;
      call.writers = peer;
    } else {
      call.target = own.place;
      call.written = peer;
      pieces.push_back({made.window->at[static_cast<size_t>(made.call.root)], addressOf(made.in), chunkBytes(made.call), false});
    }
  }
  driver::cuda::Driver& driver = device_.gpu->driver();
  TUTTI_TRY(room->begin(call, driver, stream));
  TUTTI_TRY(copyAll(pieces, false, stream));
  return room->meet(call, 0, driver, stream);
}

}  // namespace tutti::comm
