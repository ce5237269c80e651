#include "transport/socket/recv_comm.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/socket/stream.h"

namespace tutti::transport::socket {

RecvComm::RecvComm(std::vector<UniqueFd> sockets, const Address& peer, const Settings& /*settings*/)
    : sockets_(std::move(sockets)), peer_(peer) {
  descriptors_.push_back(sockets_[0].get());
}

Result<std::unique_ptr<RecvComm>> RecvComm::create(std::vector<UniqueFd> sockets, const Address& peer, const Streams& streams,
                                                   const Settings& settings) {
  std::unique_ptr<RecvComm> comm(new RecvComm(std::move(sockets), peer, settings));
  Frame welcome;
  welcome.bytes = kWelcome;
  const iovec part{&welcome, sizeof welcome};
  (void)sendSome(comm->sockets_[0].get(), &part, 1);  // where it cannot be sent, the first read will say why
  if (comm->sockets_.size() > 1) {
    auto helpers = Helpers::create(Helpers::Direction::Receive, comm->sockets_, streams.threads, settings);
    if (!helpers) return tl::unexpected(std::move(helpers).error());
    comm->helpers_ = std::move(*helpers);
    comm->helpers_->addDescriptors(comm->descriptors_);
  }
  return comm;
}

bool RecvComm::fail(Status why) {
  if (status_.ok()) status_ = std::move(why);
  return false;
}

bool RecvComm::failReceiving(int why) { return fail(error(Code::RemoteError, "receiving from {}: {}", peer_.text(), errorText(why))); }

Poll RecvComm::irecv(const net::InMessage& message, net::Request* request) {
  *request = net::Request();
  if (broken()) return Poll::Failed;
  Slot& slot = slots_[posted_ % slots_.size()];
  if (slot.state != Slot::State::Free) return Poll::Pending;
  slot.message = message;
  slot.bytes = slot.received = 0;
  slot.state = Slot::State::Posted;
  ++posted_;
  if (overtakes()) useStash();  // its frame may have come already, and helpers can begin
  *request = net::Request{&slot};
  return Poll::Ready;
}

/// The oldest receive of that tag that has no message yet.
RecvComm::Slot* RecvComm::findPosted(int32_t tag) {
  while (matched_ < posted_ && slots_[matched_ % slots_.size()].state != Slot::State::Posted) ++matched_;
  for (uint64_t n = matched_; n < posted_; ++n) {
    Slot& slot = slots_[n % slots_.size()];
    if (slot.state == Slot::State::Posted && slot.message.tag == tag) return &slot;
  }
  return nullptr;
}

/// A frame has come. False: nobody receives its message yet, or it cannot be.
bool RecvComm::beginMessage(const Frame& frame) {
  if (frame.bytes == kLeave) {
    peerLeft_ = true;
    return false;
  }
  Slot* slot = findPosted(frame.tag);
  if (slot == nullptr) return false;
  if (frame.bytes > slot->message.capacity) {
    return fail(error(Code::RemoteError, "{} sent {} bytes where {} were expected", peer_.text(), frame.bytes, slot->message.capacity));
  }
  slot->bytes = frame.bytes;
  slot->state = Slot::State::Arriving;
  if (frame.pieceBytes == 0) {
    arriving_ = slot;
    return true;
  }
  if (!helpers_ || !helpers_->plausible(frame.bytes, frame.pieceBytes)) {
    return fail(error(Code::RemoteError, "{} cut a message of {} bytes into pieces of {}", peer_.text(), frame.bytes, frame.pieceBytes));
  }
  helpers_->share(slot->message.data, frame.bytes, frame.pieceBytes, &slot->piecesLeft);
  slot->state = Slot::State::Arrived;  // as far as stream 0 goes
  return true;
}

/// Moves on with what lies in the stash. Whether it did.
bool RecvComm::useStash() {
  bool moved = false;
  for (;;) {
    if (arriving_ != nullptr) {
      const uint64_t step = std::min<uint64_t>(wanted(), end_ - begin_);
      if (step > 0) std::memcpy(arriving_->message.data + arriving_->received, stash_.data() + begin_, step);
      arriving_->received += step;
      begin_ += step;
      if (wanted() > 0) return moved || step > 0;
      arriving_->state = Slot::State::Arrived;
      arriving_ = nullptr;
      moved = true;
    }
    if (end_ - begin_ < sizeof(Frame)) return moved;
    Frame frame;
    std::memcpy(&frame, stash_.data() + begin_, sizeof frame);
    if (!beginMessage(frame)) return moved;
    begin_ += sizeof frame;
    moved = true;
  }
}

Transfer RecvComm::read(uint64_t direct, uint64_t* asked) {
  const iovec tail{stash_.data() + end_, stash_.size() - end_};
  *asked = direct;
  if (direct == 0) {
    *asked = tail.iov_len;
    return peek(tail);
  }
  iovec parts[3];
  size_t count = 0;
  if (peeked_ > 0) parts[count++] = {stash_.data() + end_ - peeked_, peeked_};  // the same bytes once more
  parts[count++] = {arriving_->message.data + arriving_->received, direct};
  if (direct == wanted()) {
    parts[count++] = tail;
    *asked += tail.iov_len;
  }
  Transfer got = receiveSome(sockets_[0].get(), parts, count);
  if (peeked_ == 0 || got.bytes == 0) return got;
  if (got.bytes < peeked_) return seenNoMore();
  const bool isAll = got.bytes == peeked_;
  got.bytes -= peeked_;
  hasTaken();
  return isAll ? receiveSome(sockets_[0].get(), parts + 1, count - 1) : got;  // the connection may have ended behind it
}

/// What has come behind that which was seen before.
Transfer RecvComm::peek(const iovec& tail) {
  if (peeked_ >= kMostPeeked) takePeeked();
  const auto look = [&] { return peekSome(sockets_[0].get(), {stash_.data() + end_ - peeked_, peeked_ + tail.iov_len}); };
  Transfer got = look();
  if (peeked_ > 0 && got.bytes == peeked_ && (isTold_ || patience_-- <= 0)) {
    takePeeked();  // the sender may wait to be acknowledged, or the connection have ended behind it
    got = look();
  }
  if (got.bytes == 0) isTold_ = false;  // nothing is left that an event could have meant
  if (got.bytes > 0 && got.bytes < peeked_) return seenNoMore();
  got.wouldBlock = got.wouldBlock || (got.bytes > 0 && got.bytes == peeked_);
  got.bytes -= std::min<uint64_t>(got.bytes, peeked_);
  peeked_ += got.bytes;
  return got;
}

/// Bytes that were there are gone: no well-meaning peer does that.
Transfer RecvComm::seenNoMore() {
  Transfer lost;
  lost.error = EPROTO;
  return lost;
}

/// Whether anything new came.
bool RecvComm::readSocket() {
  if (begin_ == end_ && peeked_ == 0) {
    begin_ = end_ = 0;
  } else if (end_ > stash_.size() / 2) {
    takePeeked();
    std::memmove(stash_.data(), stash_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const uint64_t direct = std::min(wanted(), kReadBytes);
  uint64_t asked = 0;
  const Transfer got = read(direct, &asked);
  if (got.ended) return fail(error(Code::RemoteError, "{} closed the connection", peer_.text()));
  if (got.error != 0) return failReceiving(got.error);
  const uint64_t placed = std::min(got.bytes, direct);
  if (arriving_ != nullptr) arriving_->received += placed;
  end_ += got.bytes - placed;
  drained_ = got.bytes > 0 && got.bytes < asked ? (direct == 0 ? kUnread : 1) : 0;
  return got.bytes > 0;
}

/// Takes from the kernel what is in the stash already.
void RecvComm::takePeeked() {
  if (peeked_ == 0) return;
  const Transfer took = skipSome(sockets_[0].get(), {stash_.data() + end_ - peeked_, peeked_});
  if (took.bytes > 0 && took.bytes < peeked_) failReceiving(EPROTO);
  hasTaken();
}

void RecvComm::hasTaken() {
  peeked_ = 0;
  patience_ = kPatience;
}

// Bytes that were never taken would turn the end of the connection into a failure at the other side.
RecvComm::~RecvComm() { takePeeked(); }

/// Whether anything moved.
bool RecvComm::pump() {
  bool moved = useStash();
  if (moved || peerLeft_ || broken()) return moved;
  if (drained_ > 0) return --drained_, true;  // there was no more a moment ago: the caller goes on with what it has, and asks again
  if (end_ - begin_ >= sizeof(Frame) && arriving_ == nullptr) return false;  // a message that nobody receives yet
  if (!readSocket()) return false;
  useStash();
  return true;
}

net::Tested RecvComm::test(net::Request request, uint64_t* bytes) {
  Slot& slot = *static_cast<Slot*>(request.token);
  bool moved = slot.state == Slot::State::Arrived ? false : pump();
  if (helpers_) moved = helpers_->drive({&slot.piecesLeft, 1}) || moved;
  // What helpers receive may have come although stream 0 has ended; and all of it before the error that is seen here.
  const bool isLost = slot.state == Slot::State::Arrived ? helpers_ && helpers_->error() != 0 : broken();
  // acquire: pairs with the helpers' release, so that what they wrote is seen.
  const bool complete = slot.state == Slot::State::Arrived && slot.piecesLeft.load(std::memory_order_acquire) == 0;
  if (!complete && isLost) return {Poll::Failed, false};
  if (!complete) return {Poll::Pending, moved};
  if (bytes != nullptr) *bytes = slot.bytes;
  slot.state = Slot::State::Free;
  return {Poll::Ready, true};
}

Poll RecvComm::check() {
  if (broken()) return Poll::Failed;
  if (peerLeft_) return Poll::Ready;
  while (matched_ < posted_ && slots_[matched_ % slots_.size()].state != Slot::State::Posted) ++matched_;
  if (matched_ < posted_ || arriving_ != nullptr) return Poll::Pending;  // test() looks
  // Reading ahead is bounded by the stash, and tells a connection that ended from a silent one.
  if (end_ - begin_ < sizeof(Frame)) (void)readSocket();
  if (end_ - begin_ >= sizeof(Frame)) {
    Frame frame;
    std::memcpy(&frame, stash_.data() + begin_, sizeof frame);
    peerLeft_ = frame.bytes == kLeave;
  }
  return broken() ? Poll::Failed : peerLeft_ ? Poll::Ready : Poll::Pending;
}

void RecvComm::takeLeave() {
  Frame frame;
  frame.bytes = kLeave;
  const iovec part{&frame, sizeof frame};
  (void)sendSome(sockets_[0].get(), &part, 1);  // where it does not fit, the peer sees a connection that ends
}

Status RecvComm::status() const {
  if (!status_.ok() || !helpers_ || helpers_->error() == 0) return status_;
  if (helpers_->error() == EPIPE) return error(Code::RemoteError, "{} closed the connection", peer_.text());
  return error(Code::RemoteError, "receiving from {}: {}", peer_.text(), errorText(helpers_->error()));
}

}  // namespace tutti::transport::socket
