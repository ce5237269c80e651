#include "transport/socket/send_comm.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/socket/stream.h"

namespace tutti::transport::socket {

SendComm::SendComm(std::vector<UniqueFd> sockets, const Address& peer, const Settings& settings)
    : sockets_(std::move(sockets)), peer_(peer), settings_(settings) {
  descriptors_.push_back(sockets_[0].get());
}

Result<std::unique_ptr<SendComm>> SendComm::create(std::vector<UniqueFd> sockets, const Address& peer, const Streams& streams,
                                                   const Settings& settings) {
  std::unique_ptr<SendComm> comm(new SendComm(std::move(sockets), peer, settings));
  if (comm->sockets_.size() > 1) {
    auto helpers = Helpers::create(Helpers::Direction::Send, comm->sockets_, streams.threads, settings);
    if (!helpers) return tl::unexpected(std::move(helpers).error());
    comm->helpers_ = std::move(*helpers);
    comm->helpers_->addDescriptors(comm->descriptors_);
  }
  return comm;
}

Poll SendComm::isend(std::span<const net::OutMessage> messages, net::Request* request) {
  *request = net::Request();
  if (broken()) return Poll::Failed;
  Slot& slot = slots_[queued_ % slots_.size()];
  if (slot.taken) return Poll::Pending;
  if (messages.empty() || messages.size() > kGather) {
    error_ = EINVAL;
    return Poll::Failed;
  }
  slot.numParts = 0;
  slot.bytes = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const net::OutMessage& message = messages[i];
    Frame& frame = slot.frames[i];
    frame = {.bytes = message.bytes, .tag = message.tag, .pieceBytes = 0};
    if (helpers_ && message.bytes > std::max<uint64_t>(settings_.inlineBytes, settings_.minTaskBytes)) {
      frame.pieceBytes = helpers_->pieceBytes(message.bytes, settings_.minTaskBytes);
    }
    slot.parts[slot.numParts++] = {&frame, sizeof frame};
    if (frame.pieceBytes > 0) {
      helpers_->share(const_cast<std::byte*>(message.data), message.bytes, frame.pieceBytes, &slot.piecesLeft[i]);
    } else if (message.bytes > 0) {
      slot.parts[slot.numParts++] = {const_cast<std::byte*>(message.data), message.bytes};
    }
    slot.bytes += message.bytes;
  }
  slot.taken = true;
  slot.number = queued_++;
  *request = net::Request{&slot};
  return Poll::Ready;
}

size_t SendComm::gather(std::array<iovec, kBatchParts>& parts) const {
  size_t count = 0;
  uint64_t bytes = 0;
  size_t part = part_;
  uint64_t offset = offset_;
  for (uint64_t n = sending_; n < queued_; ++n, part = 0) {
    const Slot& slot = slots_[n % slots_.size()];
    for (; part < slot.numParts; ++part, offset = 0) {
      if (count == parts.size() || bytes >= kBatchBytes) return count;
      const iovec& whole = slot.parts[part];
      const uint64_t rest = std::min(whole.iov_len - offset, kBatchBytes);
      parts[count++] = {static_cast<std::byte*>(whole.iov_base) + offset, rest};
      bytes += rest;
    }
  }
  return count;
}

void SendComm::advance(uint64_t bytes) {
  while (bytes > 0) {
    const Slot& slot = slots_[sending_ % slots_.size()];
    const uint64_t step = std::min<uint64_t>(bytes, slot.parts[part_].iov_len - offset_);
    bytes -= step;
    offset_ += step;
    if (offset_ < slot.parts[part_].iov_len) return;
    offset_ = 0;
    if (++part_ < slot.numParts) continue;
    part_ = 0;
    ++sending_;
  }
}

/// Few bytes in several parts become one: the kernel takes longer over parts than a copy does. How many there are now.
size_t SendComm::flatten(std::array<iovec, kBatchParts>& parts, size_t count, std::span<std::byte, kFewBytes> room) {
  if (count == 1) return count;
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    if (parts[i].iov_len > room.size() - bytes) return count;
    bytes += parts[i].iov_len;
  }
  std::byte* at = room.data();
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(at, parts[i].iov_base, parts[i].iov_len);
    at += parts[i].iov_len;
  }
  parts[0] = {room.data(), bytes};
  return 1;
}

/// Whether anything left.
bool SendComm::pump() {
  if (sending_ == queued_ || error_ != 0) return false;
  std::array<iovec, kBatchParts> parts;
  std::array<std::byte, kFewBytes> room;
  const size_t count = flatten(parts, gather(parts), room);
  const Transfer sent = sendSome(sockets_[0].get(), parts.data(), count);
  if (sent.error != 0) {
    error_ = sent.error;
    return false;
  }
  advance(sent.bytes);
  return sent.bytes > 0;
}

net::Tested SendComm::test(net::Request request, uint64_t* bytes) {
  Slot& slot = *static_cast<Slot*>(request.token);
  const auto isOut = [&] { return sending_ > slot.number; };
  bool moved = isOut() ? false : pump();
  if (helpers_) moved = helpers_->drive(slot.piecesLeft) || moved;
  if (broken()) return {Poll::Failed, false};
  // acquire: pairs with the helpers' release, so that the memory is ours again.
  const auto throughHelpers = [](const std::atomic<uint32_t>& left) { return left.load(std::memory_order_acquire) == 0; };
  if (!isOut() || !std::all_of(slot.piecesLeft.begin(), slot.piecesLeft.end(), throughHelpers)) return {Poll::Pending, moved};
  if (bytes != nullptr) *bytes = slot.bytes;
  slot.taken = false;
  return {Poll::Ready, true};
}

/// The peer sends nothing but its leave: anything else on the way back is the end of the connection.
Poll SendComm::check() {
  if (broken()) return Poll::Failed;
  Frame frame;
  const iovec part{&frame, sizeof frame};
  const Transfer got = receiveSome(sockets_[0].get(), &part, 1);
  if (got.bytes == sizeof frame && frame.bytes == kLeave) peerLeft_ = true;
  if (peerLeft_) return Poll::Ready;
  if (got.wouldBlock) return Poll::Pending;
  error_ = got.error != 0 ? got.error : EPIPE;
  return Poll::Failed;
}

/// What the kernel has sent and the other kernel has not confirmed. What waits for room at the other side is not among it.
std::optional<bool> SendComm::isUnderWay() const {
  return std::any_of(sockets_.begin(), sockets_.end(), [](const UniqueFd& socket) {
    tcp_info info{};
    socklen_t length = sizeof info;
    return getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_unacked > 0;
  });
}

void SendComm::takeLeave() {
  Frame frame;
  frame.bytes = kLeave;
  const iovec part{&frame, sizeof frame};
  (void)sendSome(sockets_[0].get(), &part, 1);  // where it does not fit, the peer sees a connection that ends
}

Status SendComm::status() const {
  const int error = error_ != 0 ? error_ : helpers_ ? helpers_->error() : 0;
  if (error == 0) return Status();
  if (error == EPIPE) return tutti::error(Code::RemoteError, "{} closed the connection", peer_.text());
  return tutti::error(Code::RemoteError, "sending to {}: {}", peer_.text(), errorText(error));
}

}  // namespace tutti::transport::socket
