// Two engines in one process with a remote pipe between them, for tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "progress/engine.h"
#include "progress/group.h"
#include "transport/local/pipe.h"
#include "transport/socket/network.h"

namespace tutti::progress {

using transport::local::Pipe;
using transport::local::PipeView;
using transport::local::RecvEnd;
using transport::local::SendEnd;
using transport::local::SlotHead;

inline constexpr std::chrono::seconds kTestPatience{30};

inline std::unique_ptr<transport::net::Network> makeSocketNetwork(const char* ip = "127.0.0.1", transport::socket::Settings settings = {}) {
  auto address = transport::socket::Address::parse(ip, 0);
  if (!address) ADD_FAILURE() << address.error().text();
  auto network = transport::socket::SocketNetwork::create({{.interface = "lo", .address = *address}}, settings);
  if (!network) {
    ADD_FAILURE() << network.error().text();
    return nullptr;
  }
  return std::move(*network);
}

inline std::unique_ptr<Engine> makeEngine(std::unique_ptr<transport::net::Network> network = makeSocketNetwork()) {
  auto engine = Engine::create(std::move(network));
  if (!engine) {
    ADD_FAILURE() << engine.error().text();
    return nullptr;
  }
  return std::move(*engine);
}

/// Calls `done` until it is true, with `drive` in between. False when it lasts too long.
template <class Drive, class Done>
bool driveUntil(Drive&& drive, Done&& done) {
  const auto end = std::chrono::steady_clock::now() + kTestPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    drive();
  }
  return true;
}

/// One direction: SendEnd → engine a → engine b → RecvEnd.
struct Link {
  static constexpr uint32_t kSlots = 4;
  static constexpr uint64_t kSlotBytes = 8192;

  Pipe near;
  Pipe far;
  std::vector<transport::local::Offer> offers;
  SendEnd send;
  RecvEnd recv;
  SendJob* sender = nullptr;
  RecvJob* receiver = nullptr;

  Link(Pipe a, Pipe b)
      : near(std::move(a)), far(std::move(b)), offers(far.view().slots), send(near.view()), recv(readView()) {}

  transport::local::PipeView readView() {
    transport::local::PipeView view = far.view();
    view.offers = offers.data();
    return view;
  }

  static std::unique_ptr<Link> make(JobGroup& from, JobGroup& to, uint32_t slots = kSlots, uint64_t slotBytes = kSlotBytes) {
    auto near = Pipe::create(slots, slotBytes);
    auto far = Pipe::create(slots, slotBytes);
    if (!near || !far) return nullptr;
    auto link = std::make_unique<Link>(std::move(*near), std::move(*far));
    transport::net::Handle handle;
    auto receiver = to.addReceive({.pipe = link->readView(), .peer = {Rank(0), "sender-host"}}, &handle);
    if (!receiver) {
      ADD_FAILURE() << receiver.error().text();
      return nullptr;
    }
    link->receiver = *receiver;
    link->sender = from.addSend({.pipe = link->near.view(), .peer = {Rank(1), "receiver-host"}});
    link->sender->setHandle(handle);
    return link;
  }

  /// Staged or inline, as the size has it.
  void push(const std::byte* data, uint64_t bytes, uint64_t signature) {
    SlotHead& head = send.head();
    head.signature = signature;
    head.bytes = bytes;
    head.lent = 0;
    if (bytes > 0) std::memcpy(bytes > transport::local::kInlineBytes ? send.staging(bytes) : head.inlineData, data, bytes);
    send.push(false);
  }
  void pushReference(const std::byte* data, uint64_t bytes, uint64_t signature) {
    SlotHead& head = send.head();
    head.signature = signature;
    head.bytes = bytes;
    head.lent = reinterpret_cast<uint64_t>(data);
    send.push(true);
  }
};

/// Owns links: declared before the groups, because pipes outlive the jobs that use them.
class Links {
 public:
  Link* make(JobGroup& from, JobGroup& to, uint32_t slots = Link::kSlots, uint64_t slotBytes = Link::kSlotBytes) {
    all_.push_back(Link::make(from, to, slots, slotBytes));
    return all_.back().get();
  }

 private:
  std::vector<std::unique_ptr<Link>> all_;
};

/// Two engines, a group on each.
struct Pair {
  Links links;
  std::unique_ptr<Engine> a;
  std::unique_ptr<Engine> b;
  std::unique_ptr<JobGroup> from;
  std::unique_ptr<JobGroup> to;

  explicit Pair(const char* ip = "127.0.0.1", const transport::socket::Settings& settings = {})
      : a(makeEngine(makeSocketNetwork(ip, settings))),
        b(makeEngine(makeSocketNetwork(ip, settings))),
        from(std::make_unique<JobGroup>(*a)),
        to(std::make_unique<JobGroup>(*b)) {}

  Link* link(uint32_t slots = Link::kSlots, uint64_t slotBytes = Link::kSlotBytes) { return links.make(*from, *to, slots, slotBytes); }
  void drive() const {
    (void)a->progress();
    (void)b->progress();
  }
  template <class Done>
  bool driveUntil(Done&& done) const {
    return progress::driveUntil([this] { drive(); }, std::forward<Done>(done));
  }
};

}  // namespace tutti::progress
