// Rank 0's part of the exchange over sockets.
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <vector>

#include "launch/address.h"
#include "launch/by_socket.h"
#include "launch/wire.h"

namespace tutti::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{5000};  // for one conversation

class Giver {
 public:
  Giver(const Standing& standing, const Key& key, const ncclUniqueId& id)
      : key_(key), id_(id), isServed_(static_cast<size_t>(standing.ranks), false), missing_(standing.ranks - 1) {}

  Status run(int listener, Deadline deadline) {
    while (missing_ > 0) {
      std::vector<pollfd> ready;
      // Who comes while all places are taken waits in the queue of the listener.
      const bool listens = guests_.size() < kMostOpen;
      ready.push_back({listens ? listener : -1, POLLIN, 0});
      Deadline next = deadline;
      for (const Guest& guest : guests_) ready.push_back({guest.socket.get(), POLLIN, 0});
      if (!guests_.empty()) next = deadline.orAfter(milliseconds(100));  // to notice those whose time is over
      if (poll(ready.data(), ready.size(), next.pollMs()) < 0 && errno != EINTR)
        return error(Code::SystemError, "poll: {}", std::strerror(errno));
      for (size_t i = guests_.size(); i-- > 0;) {
        const bool stays = ready[i + 1].revents == 0 ? !guests_[i].deadline.isOver() : read(guests_[i]);
        if (!stays) guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (!problem_.ok()) return problem_;
      if (ready[0].revents != 0) welcome(listener);
      if (missing_ > 0 && deadline.isOver())
        return error(Code::RemoteError, "{} have not come for the unique id in time", describeMissing());
    }
    return {};
  }

 private:
  enum class Stage : uint8_t { Hello, Request, Thanks };

  struct Guest {
    UniqueHandle<DescriptorTraits> socket;
    Deadline deadline = Deadline::after(kPatience);
    Stage stage = Stage::Hello;
    std::array<std::byte, sizeof(wire::Hello)> bytes{};  // no message that a guest sends is longer
    size_t filled = 0;
    Key session{};
    wire::Request request;
  };
  static_assert(sizeof(wire::Sealed<wire::Request>) <= sizeof(wire::Hello) && sizeof(wire::Sealed<wire::Thanks>) <= sizeof(wire::Hello));

  void welcome(int listener) {
    Descriptor socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket || !isOfThisUser(socket.get())) return;
    guests_.emplace_back();
    guests_.back().socket = std::move(socket);
  }

  static size_t expectedBytes(Stage stage) {
    if (stage == Stage::Hello) return sizeof(wire::Hello);
    return stage == Stage::Request ? sizeof(wire::Sealed<wire::Request>) : sizeof(wire::Sealed<wire::Thanks>);
  }

  /// False when the conversation is over.
  bool read(Guest& guest) {
    const size_t expected = expectedBytes(guest.stage);
    const ssize_t received = recv(guest.socket.get(), guest.bytes.data() + guest.filled, expected - guest.filled, 0);
    if (received < 0) return errno == EAGAIN || errno == EINTR;
    if (received == 0) return false;
    guest.filled += static_cast<size_t>(received);
    if (guest.filled < expected) return true;
    guest.filled = 0;
    switch (guest.stage) {
      case Stage::Hello: return greet(guest);
      case Stage::Request: return reply(guest);
      case Stage::Thanks: break;
    }
    wire::Thanks thanks;
    if (!wire::unsealed(guest.session, wire::kThanks, {guest.bytes.data(), expected}, thanks)) return false;
    if (!isServed_[guest.request.rank]) --missing_;
    isServed_[guest.request.rank] = true;
    return false;
  }

  template <class T>
  static bool write(Guest& guest, const T& message) {
    return send(guest.socket.get(), &message, sizeof message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
  }

  bool greet(Guest& guest) {
    wire::Hello hello;
    std::memcpy(&hello, guest.bytes.data(), sizeof hello);
    if (hello.magic != wire::kMagic) return false;
    const Nonce nonce = drawNonce();
    guest.session = sessionKey(key_, hello.nonce, nonce);
    guest.stage = Stage::Request;
    return write(guest, nonce);
  }

  bool reply(Guest& guest) {
    const std::span<const std::byte> bytes(guest.bytes.data(), expectedBytes(Stage::Request));
    if (!wire::unsealed(guest.session, wire::kRequest, bytes, guest.request)) return false;
    const auto ranks = static_cast<uint32_t>(isServed_.size());
    wire::Answer answer{.ranks = ranks, .id = id_};
    if (guest.request.ranks != ranks || guest.request.rank == 0 || guest.request.rank >= ranks) {
      answer = {.verdict = wire::Verdict::Disagrees, .ranks = ranks};
      problem_ = error(Code::InvalidArgument, "a process says that it is rank {} of {}; here is rank 0 of {}", guest.request.rank,
                       guest.request.ranks, ranks);
    } else if (isServed_[guest.request.rank]) {
      answer = {.verdict = wire::Verdict::Again, .ranks = ranks};
    }
    guest.stage = Stage::Thanks;
    return write(guest, wire::sealed(guest.session, wire::kAnswer, answer)) && answer.verdict == wire::Verdict::Served;
  }

  std::string describeMissing() const {
    std::string text;
    int told = 0;
    for (size_t rank = 1; rank < isServed_.size() && told < 8; ++rank) {
      if (isServed_[rank]) continue;
      text += format("{}{}", told == 0 ? "" : ", ", rank);
      ++told;
    }
    return format("ranks {}{} of {}", text, missing_ > told ? ", …" : "", isServed_.size());
  }

  const Key key_;
  const ncclUniqueId id_;
  std::deque<Guest> guests_;
  std::vector<bool> isServed_;
  int missing_;
  Status problem_;
};

}  // namespace

Status giveId(const Standing& standing, const std::string& secret, const ncclUniqueId& id, Deadline deadline) {
  TUTTI_TRY(startSeals());
  const Key key = keyOf(standing.jobKey, secret);
  Address address;
  Result<Descriptor> listener = listenFor(publicHash(key), standing.isOneHost(), address);
  if (!listener) return listener.error();
  return Giver(standing, key, id).run(listener->get(), deadline);
}

}  // namespace tutti::launch
