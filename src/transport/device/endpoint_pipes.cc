// How an endpoint opens pipes: what it offers its peers, and how ends in the GPU's tables come to name both sides.
#include <algorithm>
#include <utility>

#include "transport/device/endpoint.h"

namespace tutti::transport::device {

using driver::cuda::DevicePtr;
using memory::Bank;
using memory::Place;
using memory::Purpose;

PipeCards& Endpoint::cardsOf(const PipeNeed& need) const {
  return need.sends ? page_.pipes(need.protocol, need.port, rank_.value, need.peer.value)
                    : page_.pipes(need.protocol, need.port, need.peer.value, rank_.value);
}

/// The channels that have the pipes, rising.
std::vector<uint64_t> Endpoint::channelsOf(const PipeNeed& need) const {
  std::vector<uint64_t> channels;
  for (int32_t c = 0; c < config_.pipeChannels[static_cast<size_t>(need.protocol)][need.port]; ++c)
    if (need.tracks.has(c)) channels.push_back(static_cast<uint64_t>(c));
  return channels;
}

/// A receiver keeps the slots of all channels that have the pipes.
uint64_t Endpoint::slotBytesOf(const PipeNeed& need) const {
  const auto p = static_cast<size_t>(need.protocol);
  return need.sends ? 0 : channelsOf(need).size() * static_cast<uint64_t>(config_.slots[p]) * config_.slotBytes[p];
}

/// Each side keeps those that it waits for.
uint64_t Endpoint::counterBytesOf(const PipeNeed& need) const { return channelsOf(need).size() * kLine; }

Status Endpoint::keepPipes(Place place, uint64_t bytes) {
  auto bank = takeZeroed(place, Purpose::Pipes, bytes);
  if (!bank) return std::move(bank).error();
  pipeBanks_.push_back(std::move(*bank));
  return {};
}

/// Slots are often just as large as a whole number of units of the driver's, so counters lie elsewhere.
Status Endpoint::offerPipes(Place place, std::span<const PipeNeed> needs) {
  if (needs.empty()) return {};
  uint64_t slotBytes = 0;
  uint64_t counterBytes = 0;
  for (const PipeNeed& need : needs) {
    slotBytes += roundUpToLine(slotBytesOf(need));
    counterBytes += counterBytesOf(need);
  }
  // Kept from the first on: whatever fails from here on, it is being filled, and then peers may know of it.
  const size_t first = pipeBanks_.size();
  if (slotBytes != 0) TUTTI_TRY(keepPipes(place, slotBytes));
  TUTTI_TRY(keepPipes(place, counterBytes));
  const Bank& slots = pipeBanks_[first];  // where there are any
  const Bank& counters = pipeBanks_.back();
  TUTTI_TRY(synchronize());
  uint64_t slotsAt = 0;
  uint64_t countersAt = 0;
  for (const PipeNeed& need : needs) {
    PipeCards& cards = cardsOf(need);
    Pipes& own = pipes_[need];
    own.counters = counters.address() + countersAt;
    announce(need.sends ? cards.sender.place : cards.filled, counters, countersAt, counterBytesOf(need));
    if (!need.sends) {
      own.slots = slots.address() + slotsAt;
      announce(cards.receiver.place, slots, slotsAt, slotBytesOf(need));
    }
    Card& card = need.sends ? cards.sender : cards.receiver;
    card.state.store(CardState::Written, std::memory_order_release);  // pairs with settlePipes()
    slotsAt += roundUpToLine(slotBytesOf(need));
    countersAt += counterBytesOf(need);
  }
  return {};
}

Poll Endpoint::settlePipes(const PipeNeed& need, Pipes& pipes) {
  if (pipes.isOpen) return Poll::Ready;
  const PipeCards& cards = cardsOf(need);
  const Card& card = need.sends ? cards.receiver : cards.sender;
  if (card.state.load(std::memory_order_acquire) == CardState::Empty) {  // pairs with offerPipes()
    missing_ = need.peer;
    return Poll::Pending;
  }
  const auto theirs = reachPipes(need, cards);
  if (!theirs) return fail(theirs.error());
  if (Status status = writeEnds(need, pipes, *theirs); !status.ok()) return fail(std::move(status));
  pipes.isOpen = true;
  return Poll::Ready;
}

/// Where this rank's GPU sees the peer's part of the pipes.
Result<Endpoint::Pipes> Endpoint::reachPipes(const PipeNeed& need, const PipeCards& cards) {
  Pipes theirs;
  const auto counters = reach(need.peer.value, need.sends ? cards.filled : cards.sender.place);
  if (!counters) return tl::unexpected(counters.error());
  theirs.counters = *counters;
  if (!need.sends) return theirs;
  const auto slots = reach(need.peer.value, cards.receiver.place);
  if (!slots) return tl::unexpected(slots.error());
  theirs.slots = *slots;
  return theirs;
}

Status Endpoint::writeEnds(const PipeNeed& need, const Pipes& own, const Pipes& theirs) {
  const auto p = static_cast<size_t>(need.protocol);
  const std::vector<uint64_t> channels = channelsOf(need);
  const uint64_t pipeBytes = static_cast<uint64_t>(config_.slots[p]) * config_.slotBytes[p];
  const DevicePtr slots = need.sends ? theirs.slots : own.slots;
  const DevicePtr table = control_.address() + ControlLayout(config_, ranks_).ends[p];
  std::vector<exec::cuda::PipeEnd> ends(channels.size());
  for (uint64_t i = 0; i < channels.size(); ++i) {
    const uint64_t c = channels[i];
    exec::cuda::PipeEnd& end = ends[i];
    end.peer = need.peer.value;
    end.port = need.port;
    end.sends = need.sends;
    end.slots = asPointer<std::byte>(slots + i * pipeBytes);
    end.wait = asPointer<uint64_t>(own.counters + i * kLine);
    end.tell = asPointer<uint64_t>(theirs.counters + i * kLine);
    int32_t& used = ends_[p][c];
    if (used == exec::cuda::kMostEnds)
      return error(Code::InvalidUsage, "rank {} has more than {} pipes of a protocol on a channel", rank_.value, used);
    const uint64_t place = c * exec::cuda::kMostEnds + static_cast<uint64_t>(used++);
    TUTTI_TRY(around_.gpu->driver().copy(table + place * sizeof end, reinterpret_cast<DevicePtr>(&end), Bytes(sizeof end), around_.stream));
  }
  return synchronize();  // the ends above are still read until then
}

}  // namespace tutti::transport::device
