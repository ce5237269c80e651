#include "progress/recv_job.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tutti::progress {

RecvJob::RecvJob(net::Network& network, int32_t device, std::unique_ptr<net::Listener> listener, const local::PipeView& pipe,
                 uint64_t mostBytes, std::atomic<uint64_t>* heard, Peer peer, ErrorLatch* latch)
    : Job(std::move(peer), latch),
      network_(network),
      device_(device),
      listener_(std::move(listener)),
      pipe_(pipe),
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
  mostAhead_ = comm_->overtakes() ? kAhead : 1;
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
    for (uint64_t n = received_; n != begun_; ++n)
      if (message(n).isRegistered) comm_->deregisterMemory(message(n).key);
    if (headersKey_.token != nullptr) comm_->deregisterMemory(headersKey_);
    if (stagingKey_.token != nullptr) comm_->deregisterMemory(stagingKey_);
  }
  comm_.reset();
}

/// `isAhead`: of a message behind one that may still be complete, though the connection has ended.
Poll RecvJob::test(net::Request request, uint64_t* bytes, bool isAhead) {
  if (!tries_) return Poll::Pending;
  const net::Tested tested = comm_->test(request, bytes);
  if (tested.poll == Poll::Failed && isAhead) return Poll::Pending;
  if (tested.poll == Poll::Failed) failComm();
  isPending_ = isPending_ || tested.poll == Poll::Pending;
  isMoving_ = isMoving_ || (tested.poll == Poll::Pending && tested.moved);
  return tested.poll;
}

/// Asks for the header of the next message that has none. Whether it did.
bool RecvJob::postHeader() {
  if (headersPosted_ - freed() >= pipe_.slots) return false;
  const net::InMessage wanted{reinterpret_cast<std::byte*>(&header(headersPosted_)), sizeof(Header), kHeaderTag, headersKey_};
  const Poll poll = comm_->irecv(wanted, &headerRequest_);
  if (poll == Poll::Failed) failComm();
  if (poll != Poll::Ready) return false;
  ++headersPosted_;
  hasPosted_ = true;
  return true;
}

bool RecvJob::checkHeader(const Header& header) {
  if (isHeaderOf(header, begun_ + 1, mostBytes_, mostPieceBytes_)) return true;
  fail(error(Code::RemoteError, "sent message {} of {} bytes in pieces of {} where message {} of at most {} bytes was expected",
             header.number, header.bytes, header.pieceBytes, begun_ + 1, mostBytes_));
  return false;
}

bool RecvJob::readHeader() {
  uint64_t bytes = 0;
  if (test(headerRequest_, &bytes, begun_ != received_) != Poll::Ready) return false;
  if (bytes != sizeof(Header)) return fail(error(Code::RemoteError, "sent a header of {} bytes", bytes)), false;
  hasHeader_ = checkHeader(header(begun_));
  return hasHeader_;
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
    spill.number = begun_ + 1;
    return spill.memory.data();
  }
  return nullptr;
}

/// Makes the place of a payload known to the network.
Status RecvJob::registerPlace(Message& message, uint64_t bytes) {
  auto key = comm_->registerMemory(message.target, bytes, net::MemoryKind::Host);
  if (!key) return std::move(key).error();
  message.key = *key;
  message.isRegistered = true;
  return {};
}

/// Where the payload goes that the latest header speaks of. False: nowhere yet.
bool RecvJob::place() {
  const Header& came = header(begun_);
  const uint64_t bytes = came.bytes;
  const bool registers = comm_->needsRegistration();
  Message& next = message(begun_);
  next = {};
  if (came.pieceBytes != 0) {
    if (!isRefused_ && (!registers || bytes >= kLeastRegistered)) next.target = pipe_.offering().find(begun_ + 1, bytes);
    isRefused_ = isRefused_ || (next.target != nullptr && registers && !registerPlace(next, bytes).ok());
    if (isRefused_) next.target = nullptr;  // it can lie elsewhere
    if (next.target != nullptr) {
      offeredBytes_.fetch_add(bytes, std::memory_order_relaxed);
    } else if (bytes <= pipe_.slotBytes) {
      next.target = pipe_.staging(begun_, bytes);
      next.key = stagingKey_;
    } else {
      next.target = spillFor(bytes);
      if (next.target == nullptr) return false;
      Status status = registers ? registerPlace(next, bytes) : Status();
      if (!status.ok()) return fail(std::move(status).at("room for a long message")), false;
    }
  }
  hasHeader_ = isRefused_ = false;
  ++begun_;
  return true;
}

/// Asks for more of a payload. Whether it did.
bool RecvJob::postPieces(Message& message, const Header& came) {
  bool moved = false;
  while (message.posted < came.bytes && piecesPosted_ - piecesDone_ < kPieces) {
    const uint64_t piece = std::min<uint64_t>(came.pieceBytes, came.bytes - message.posted);
    Piece& next = pieces_[piecesPosted_ % kPieces];
    const Poll poll = comm_->irecv({message.target + message.posted, piece, kPayloadTag, message.key}, &next.request);
    if (poll == Poll::Failed) return failComm(), false;
    if (poll != Poll::Ready) break;
    next.bytes = piece;
    ++piecesPosted_;
    message.posted += piece;
    hasPosted_ = moved = true;
  }
  return moved;
}

/// Asks for what comes next, in the order in which it is sent. Whether it did, or found something.
bool RecvJob::goAhead() {
  bool moved = false;
  if (begun_ != received_) {
    Message& latest = message(begun_ - 1);
    const Header& came = header(begun_ - 1);
    if (latest.target != nullptr && latest.posted < came.bytes) {
      moved = postPieces(latest, came);
      if (isBroken() || latest.posted < came.bytes) return moved;
    }
  }
  if (headersPosted_ == begun_) moved = postHeader() || moved;  // it may come at once behind the last piece
  if (isBroken() || headersPosted_ == begun_ || begun_ - received_ == mostAhead_) return moved;
  if (!hasHeader_ && !readHeader()) return moved;
  return place() || moved;
}

/// Goes on with the oldest message. Whether anything of it came.
bool RecvJob::land() {
  if (received_ == begun_) return false;
  const Header& came = header(received_);
  Message& oldest = message(received_);
  bool moved = false;
  while (oldest.target != nullptr && oldest.done < oldest.posted) {
    const Piece& piece = pieces_[piecesDone_ % kPieces];
    uint64_t bytes = 0;
    if (test(piece.request, &bytes) != Poll::Ready) return moved;
    if (bytes != piece.bytes) return fail(error(Code::RemoteError, "sent {} bytes of {}", bytes, piece.bytes)), false;
    ++piecesDone_;
    oldest.done += bytes;
    moved = true;
  }
  if (oldest.target != nullptr && oldest.done < came.bytes) return moved;
  if (oldest.isRegistered) comm_->deregisterMemory(oldest.key);
  publish();
  return true;
}

void RecvJob::publish() {
  const Header& came = header(received_);
  const std::byte* const target = message(received_).target;
  local::SlotHead& slot = head();
  slot.signature = came.signature;
  if (heard_ != nullptr) heard_->store(came.signature, std::memory_order_relaxed);
  const bool inSlot = target == nullptr || target == pipe_.staging(received_, came.bytes);
  slot.lent = inSlot ? 0 : reinterpret_cast<uint64_t>(target);
  if (target != nullptr) {
    slot.wentPast = 0;
  } else {
    std::memcpy(slot.inlineData, came.payload, came.bytes);
  }
  slot.bytes = came.bytes;
  slot.filled.store(++received_, std::memory_order_release);  // pairs with RecvEnd::ready
}

/// A little. Whether anything was done.
bool RecvJob::step() {
  tries_ = poked();
  isPending_ = isMoving_ = hasPosted_ = false;
  bool moved = land();
  if (!isBroken()) moved = goAhead() || moved;
  if (hasPosted_) {
    stirred = true;
  } else if (isPending_) {
    stirred = isMoving_ || moved;  // what moved may have completed what was found pending before
  }
  return moved && !isBroken();
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
  did.waits = begun_ != received_;
  did.moved = did.moved || (stirred && (did.waits || (!hasHeader_ && headersPosted_ > begun_)));
  if (idle()) lookForLeave(wasPoked);
  return did;
}

}  // namespace tutti::progress
