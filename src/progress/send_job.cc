#include "progress/send_job.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::progress {

using local::kInlineBytes;
using local::SlotHead;

SendJob::SendJob(net::Network& network, int32_t device, const local::PipeView& pipe, Peer peer, ErrorLatch* latch)
    : Job(std::move(peer), latch), network_(network), device_(device), pipe_(pipe) {}

void SendJob::setHandle(const net::Handle& handle) {
  handle_ = handle;
  hasHandle_.store(true, std::memory_order_release);  // pairs with connect()
  nudge();
}

Poll SendJob::connect() {
  if (!hasHandle_.load(std::memory_order_acquire)) return Poll::Pending;  // pairs with setHandle()
  if (!connecting_) {
    auto connecting = network_.connect(device_, handle_);
    if (!connecting) return fail(connecting.error()), Poll::Failed;
    connecting_ = std::move(*connecting);
  }
  auto comm = connecting_->poll();
  if (!comm) return fail(comm.error()), Poll::Failed;
  if (*comm == nullptr) return Poll::Pending;
  comm_ = std::move(*comm);
  return Poll::Ready;
}

std::span<const int> SendJob::setUpDescriptors() const {
  return connecting_ ? connecting_->descriptors() : std::span<const int>();
}

Status SendJob::start() {
  connecting_.reset();
  const auto properties = network_.properties(device_);
  if (!properties) return properties.error();
  pieceBytes_ = std::min(kMostPieceBytes, properties->maxMessageBytes);
  if (!comm_->needsRegistration()) return Status();
  auto headers = comm_->registerMemory(headers_.data(), sizeof headers_, net::MemoryKind::Host);
  if (!headers) return std::move(headers).error();
  headersKey_ = *headers;
  auto staging = comm_->registerMemory(pipe_.memory, pipe_.stagingBytes(), net::MemoryKind::Host);
  if (!staging) return std::move(staging).error();
  stagingKey_ = *staging;
  return Status();
}

void SendJob::disconnect() {
  connecting_.reset();
  if (comm_ && comm_->needsRegistration()) {
    for (uint64_t n = landed_; n < flown_; ++n) {
      Flight& flight = flights_[n % kFlights];
      if (flight.registered) comm_->deregisterMemory(flight.key);
    }
    if (payloadRegistered_) comm_->deregisterMemory(payloadKey_);
    if (headersKey_.token != nullptr) comm_->deregisterMemory(headersKey_);
    if (stagingKey_.token != nullptr) comm_->deregisterMemory(stagingKey_);
  }
  comm_.reset();
}

bool SendJob::filled() const {
  return pipe_.head(issued_).filled.load(std::memory_order_acquire) == issued_ + 1;  // pairs with SendEnd::push
}

Result<net::MemoryKey> SendJob::keyFor(const std::byte* data, uint64_t bytes) {
  payloadRegistered_ = false;
  if (!comm_->needsRegistration()) return net::MemoryKey();
  if (data >= pipe_.memory && data < pipe_.memory + pipe_.stagingBytes()) return stagingKey_;
  // The caller may free its buffer after the call, so that no registration outlives the message.
  auto key = comm_->registerMemory(const_cast<std::byte*>(data), bytes, net::MemoryKind::Host);
  payloadRegistered_ = key.has_value();
  return key;
}

bool SendJob::launch(std::span<const net::OutMessage> messages, bool endsMessage) {
  Flight& flight = flights_[flown_ % kFlights];
  const Poll poll = comm_->isend(messages, &flight.request);
  if (poll == Poll::Failed) failComm();
  if (poll != Poll::Ready) return false;
  flight.endsMessage = endsMessage;
  flight.registered = endsMessage && payloadRegistered_;
  flight.key = payloadKey_;
  ++flown_;
  if (endsMessage) {
    payloadRegistered_ = false;
    headerFlown_ = false;
    offset_ = 0;
    ++issued_;
  }
  return true;
}

/// Sends the header, and the payload with it where the network can.
bool SendJob::beginMessage(const SlotHead& head) {
  Header& header = headers_[issued_ % headers_.size()];
  const bool inHeader = head.bytes <= kInlineBytes;
  header.number = issued_ + 1;
  header.signature = head.signature;
  header.bytes = head.bytes;
  header.pieceBytes = inHeader ? 0 : static_cast<uint32_t>(pieceBytes_);
  const net::OutMessage announced{reinterpret_cast<const std::byte*>(&header), sizeof header, kHeaderTag, headersKey_};
  if (inHeader) {
    std::memcpy(header.payload, pipe_.payload(issued_), head.bytes);
    return launch({&announced, 1}, true);
  }
  if (comm_->maxGather() >= 2 && head.bytes <= pieceBytes_ && !comm_->needsRegistration()) {
    const std::array<net::OutMessage, 2> both{announced, net::OutMessage{pipe_.payload(issued_), head.bytes, kPayloadTag, {}}};
    return launch(both, true);
  }
  if (!launch({&announced, 1}, false)) return false;
  headerFlown_ = true;
  auto key = keyFor(pipe_.payload(issued_), head.bytes);
  if (!key) return fail(key.error()), false;
  payloadKey_ = *key;
  return true;
}

bool SendJob::isUnderWay() const {
  if (final()) return false;
  if (comm_ == nullptr) return hasHandle_.load(std::memory_order_acquire) && filled();  // pairs with setHandle()
  return comm_->isUnderWay().value_or(landed_ != flown_);
}

/// Makes the next request. False: there is none to make now.
bool SendJob::issue() {
  if (flown_ - landed_ == kFlights || !filled()) return false;
  const SlotHead& head = pipe_.head(issued_);
  if (!headerFlown_) return beginMessage(head);
  const uint64_t piece = std::min(pieceBytes_, head.bytes - offset_);
  const net::OutMessage message{pipe_.payload(issued_) + offset_, piece, kPayloadTag, payloadKey_};
  const uint64_t end = offset_ + piece;
  offset_ = end;
  if (launch({&message, 1}, end == head.bytes)) return true;
  offset_ = end - piece;
  return false;
}

/// Looks at the oldest request. Whether it is done.
bool SendJob::land() {
  Flight& flight = flights_[landed_ % kFlights];
  const net::Tested tested = comm_->test(flight.request, nullptr);
  if (tested.poll == Poll::Failed) failComm();
  if (tested.poll != Poll::Ready) {
    stirred = tested.moved;
    return false;
  }
  if (flight.registered) comm_->deregisterMemory(flight.key);
  flight.registered = false;
  ++landed_;
  if (flight.endsMessage) pipe_.freed->value.store(++freed_, std::memory_order_release);  // pairs with SendEnd::refresh
  return true;
}

Advance SendJob::move() {
  Advance did;
  const uint64_t flownBefore = flown_;
  while (issue()) did.moved = true;
  if (peerLeft && flown_ != flownBefore) {
    fail(error(Code::RemoteError, "closed its end, and does not receive any more"));
    return did;
  }
  if (did.moved) stirred = true;
  while (landed_ != flown_ && poked() && land()) did.moved = true;
  did.moved = did.moved || (landed_ != flown_ && stirred);
  did.waits = landed_ != flown_;
  if (landed_ == flown_ && told && !blind()) {
    told = false;
    const Poll poll = comm_->check();
    if (poll == Poll::Failed) failComm();
    peerLeft = peerLeft || poll == Poll::Ready;
  }
  return did;
}

}  // namespace tutti::progress
