#include "progress/recv_job.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tutti::progress {

RecvJob::RecvJob(net::Network& network, int32_t device, std::unique_ptr<net::Listener> listener, const local::PipeView& pipe,
                 const OfferView& offers, uint64_t mostBytes, std::atomic<uint64_t>* heard, Peer peer, ErrorLatch* latch)
    : Job(std::move(peer), latch),
      network_(network),
      device_(device),
      listener_(std::move(listener)),
      pipe_(pipe),
      offers_(offers),
      mostBytes_(mostBytes),
      heard_(heard) {}

Poll RecvJob::connect() {
  auto comm = listener_->accept();
  if (!comm) return fail(comm.error()), Poll::Failed;
  if (*comm == nullptr) return Poll::Pending;
  comm_ = std::move(*comm);
  return Poll::Ready;
}

void RecvJob::onEvent() {
  Job::onEvent();
  if (comm_) comm_->expect();
}

Status RecvJob::start() {
  listener_.reset();
  const auto properties = network_.properties(device_);
  if (!properties) return properties.error();
  mostPieceBytes_ = properties->maxMessageBytes;
  if (!comm_->needsRegistration()) return Status();
  auto headers = comm_->registerMemory(headers_.data(), sizeof headers_, net::MemoryKind::Host);
  if (!headers) return std::move(headers).error();
  headersKey_ = *headers;
  auto staging = comm_->registerMemory(pipe_.memory, pipe_.stagingBytes(), net::MemoryKind::Host);
  if (!staging) return std::move(staging).error();
  stagingKey_ = *staging;
  return Status();
}

void RecvJob::disconnect() {
  listener_.reset();
  if (comm_ && comm_->needsRegistration()) {
    if (targetRegistered_) comm_->deregisterMemory(targetKey_);
    if (headersKey_.token != nullptr) comm_->deregisterMemory(headersKey_);
    if (stagingKey_.token != nullptr) comm_->deregisterMemory(stagingKey_);
  }
  comm_.reset();
}

Poll RecvJob::test(net::Request request, uint64_t* bytes) {
  if (!poked()) return Poll::Pending;
  const net::Tested tested = comm_->test(request, bytes);
  if (tested.poll == Poll::Failed) failComm();
  if (tested.poll == Poll::Pending) stirred = tested.moved;
  return tested.poll;
}

/// Asks for the header of the next message that has none. Whether it did.
bool RecvJob::postHeader() {
  if (headersPosted_ - freed() >= pipe_.slots) return false;
  const net::InMessage message{reinterpret_cast<std::byte*>(&header(headersPosted_)), sizeof(Header), kHeaderTag, headersKey_};
  const Poll poll = comm_->irecv(message, &headerRequests_[headersPosted_ % headerRequests_.size()]);
  if (poll == Poll::Failed) failComm();
  if (poll != Poll::Ready) return false;
  ++headersPosted_;
  stirred = true;
  return true;
}

bool RecvJob::checkHeader(const Header& header) {
  if (isHeaderOf(header, received_ + 1, mostBytes_, mostPieceBytes_)) return true;
  fail(error(Code::RemoteError, "sent message {} of {} bytes in pieces of {} where message {} of at most {} bytes was expected",
             header.number, header.bytes, header.pieceBytes, received_ + 1, mostBytes_));
  return false;
}

bool RecvJob::readHeader() {
  if (headersPosted_ == received_ && !postHeader()) return false;
  uint64_t bytes = 0;
  if (test(headerRequests_[received_ % headerRequests_.size()], &bytes) != Poll::Ready) return false;
  const Header& came = header(received_);
  if (bytes != sizeof(Header)) return fail(error(Code::RemoteError, "sent a header of {} bytes", bytes)), false;
  if (!checkHeader(came)) return false;
  if (came.pieceBytes != 0) {
    stage_ = Stage::Place;
    return true;
  }
  std::memcpy(head().inlineData, came.payload, came.bytes);
  target_ = nullptr;
  publish();
  return true;
}

/// A buffer for a message that is longer than a slot; null: wait until the reader is done with an earlier one.
std::byte* RecvJob::spillFor(uint64_t bytes) {
  for (Spill& spill : spills_) {
    if (spill.number > freed()) continue;
    if (spill.memory.size().value < bytes) {
      spill.memory = memory::Mapping();
      auto memory = memory::Mapping::anonymous(Bytes(std::bit_ceil(bytes)));
      if (!memory) return fail(std::move(memory).error().at("room for a long message")), nullptr;
      spill.memory = std::move(*memory);
    }
    spill.number = received_ + 1;
    return spill.memory.data();
  }
  return nullptr;
}

bool RecvJob::place() {
  const uint64_t bytes = header(received_).bytes;
  target_ = offers_.find(received_ + 1, bytes);
  const bool offered = target_ != nullptr;
  const bool fits = bytes <= pipe_.slotBytes;
  if (!offered) target_ = fits ? pipe_.staging(received_, bytes) : spillFor(bytes);
  if (target_ == nullptr) return false;
  if (offered) offeredBytes_.fetch_add(bytes, std::memory_order_relaxed);
  targetKey_ = stagingKey_;
  targetRegistered_ = comm_->needsRegistration() && (offered || !fits);
  if (targetRegistered_) {
    auto key = comm_->registerMemory(target_, bytes, net::MemoryKind::Host);
    targetRegistered_ = key.has_value();
    if (!key) return fail(key.error()), false;
    targetKey_ = *key;
  }
  posted_ = done_ = 0;
  stage_ = Stage::Payload;
  return true;
}

bool RecvJob::movePayload() {
  const Header& came = header(received_);
  bool moved = false;
  while (posted_ < came.bytes && piecesPosted_ - piecesDone_ < kPieces) {
    const uint64_t piece = std::min<uint64_t>(came.pieceBytes, came.bytes - posted_);
    Piece& next = pieces_[piecesPosted_ % kPieces];
    const Poll poll = comm_->irecv({target_ + posted_, piece, kPayloadTag, targetKey_}, &next.request);
    if (poll == Poll::Failed) return failComm(), false;
    if (poll != Poll::Ready) break;
    next.bytes = piece;
    ++piecesPosted_;
    posted_ += piece;
    stirred = moved = true;
  }
  // The next header may come at once behind the last piece.
  if (posted_ == came.bytes && headersPosted_ == received_ + 1) (void)postHeader();
  while (piecesDone_ != piecesPosted_) {
    const Piece& oldest = pieces_[piecesDone_ % kPieces];
    uint64_t bytes = 0;
    if (test(oldest.request, &bytes) != Poll::Ready) return moved;
    if (bytes != oldest.bytes) return fail(error(Code::RemoteError, "sent {} bytes of {}", bytes, oldest.bytes)), false;
    ++piecesDone_;
    done_ += bytes;
    moved = true;
  }
  if (done_ < came.bytes) return moved;
  if (targetRegistered_) comm_->deregisterMemory(targetKey_);
  targetRegistered_ = false;
  publish();
  return true;
}

void RecvJob::publish() {
  const Header& came = header(received_);
  local::SlotHead& slot = head();
  slot.signature = came.signature;
  if (heard_ != nullptr) heard_->store(came.signature, std::memory_order_relaxed);
  const bool inSlot = target_ == nullptr || target_ == pipe_.staging(received_, came.bytes);
  slot.lent = inSlot ? 0 : reinterpret_cast<uint64_t>(target_);
  if (target_ != nullptr) slot.wentPast = 0;
  slot.bytes = came.bytes;
  slot.filled.store(++received_, std::memory_order_release);  // pairs with RecvEnd::ready
  stage_ = Stage::Header;
}

/// One thing. Whether it was done.
bool RecvJob::step() {
  switch (stage_) {
    case Stage::Header: return readHeader();
    case Stage::Place: return place();
    case Stage::Payload: return movePayload();
  }
  return false;
}

/// With no message under way: whether the peer has taken its leave, or is gone.
void RecvJob::lookForLeave(bool wasPoked) {
  const bool asked = headersPosted_ > received_;
  if (blind() || !(asked ? wasPoked && !stirred : told)) return;
  told = false;
  const Poll poll = comm_->check();
  if (poll == Poll::Failed) failComm();
  peerLeft = peerLeft || poll == Poll::Ready;
}

Advance RecvJob::move() {
  Advance did;
  const bool wasPoked = stirred;
  const uint64_t last = received_ + kMostMessages;
  while (received_ < last && step()) did.moved = true;
  // A connection that knows that there is nothing yet says so, and wants to be asked again.
  did.moved = did.moved || (stirred && (stage_ == Stage::Payload || (stage_ == Stage::Header && headersPosted_ > received_)));
  did.waits = stage_ == Stage::Payload;
  if (stage_ == Stage::Header) lookForLeave(wasPoked);
  return did;
}

}  // namespace tutti::progress
