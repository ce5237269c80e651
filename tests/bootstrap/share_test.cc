// The door at which the processes of a host get their memory: whoever belongs to the job, and strangers, to whom it is as open.
#include "bootstrap/share.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <future>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "net.h"

namespace tutti::bootstrap::share_test {
namespace {

using namespace play;

Result<UniqueFd> fetch(Loop& loop, const SharePlace& place, milliseconds limit = milliseconds(2000)) {
  std::promise<Result<UniqueFd>> done;
  auto outcome = done.get_future();
  loop.reactor.post([&] { fetchShared(loop.reactor, place, limit, [&](Result<UniqueFd> fd) { done.set_value(std::move(fd)); }); });
  return outcome.get();
}

struct Door {
  int fd = -1;
  SocketAddress address;
};

/// Where this process listens with sockets of that kind: what anybody on the host can read in /proc/net/unix.
std::vector<Door> ownDoors() {
  std::vector<Door> doors;
  for (int fd = 3; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t length = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) continue;
    SocketAddress address;
    address.size = sizeof address.storage;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) == 0 && address.storage.ss_family == AF_UNIX)
      doors.push_back({fd, address});
  }
  return doors;
}

UniqueFd knock(const Door& door) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&door.address.storage), door.address.size) != 0) fd.reset();
  return fd;
}

void say(const UniqueFd& fd, std::span<const std::byte> bytes) { (void)send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }

/// What a process of the job says, as far as a stranger can: the proof is made up. Nothing but noise without a topic.
std::vector<std::byte> handshake(std::optional<uint64_t> topic, std::mt19937& random) {
  std::vector<std::byte> said(Greeting::kBytes + sizeof(Proof));
  for (std::byte& byte : said) byte = static_cast<std::byte>(random());
  Greeting greeting{Purpose::Share, topic.value_or(0), {}};
  fillRandom(greeting.nonce);
  const auto bytes = greeting.encode();
  if (topic) std::copy(bytes.begin(), bytes.end(), said.begin());
  return said;
}

/// Whether a descriptor has come, with whatever else has.
bool hasDescriptor(const UniqueFd& fd) {
  std::array<std::byte, 256> room;
  alignas(cmsghdr) std::array<char, 256> control{};
  iovec part{room.data(), room.size()};
  for (;;) {
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (recvmsg(fd.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0) return false;
    if (CMSG_FIRSTHDR(&message) != nullptr) return true;
  }
}

struct Offer {
  Offer() {
    loop.run([&] { listener = offerShared(loop.reactor, place, memory.get()); });
    EXPECT_TRUE(listener) << listener.error().text();
  }
  ~Offer() {
    loop.run([&] { (*listener)->close(); });
  }
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;

  Loop loop;
  const SharePlace place{123, kSecret, 1};
  const UniqueFd memory = std::move(*sharedMarked(9)(Roster{}));
  Result<std::shared_ptr<Listener>> listener = fail(Code::InternalError, "");
};

TEST(Share, ManyGetTheSameMemory) {
  Loop loop;
  const SharePlace place{123, kSecret, 1};
  const UniqueFd memory = std::move(*sharedMarked(9)(Roster{}));
  Result<std::shared_ptr<Listener>> offer = fail(Code::InternalError, "");
  loop.run([&] { offer = offerShared(loop.reactor, place, memory.get()); });
  ASSERT_TRUE(offer) << offer.error().text();
  for (int i = 0; i < 20; ++i) {
    const auto fd = fetch(loop, place);
    ASSERT_TRUE(fd) << fd.error().text();
    EXPECT_EQ(markOf(*fd), 9);
  }
  SharePlace other = place;
  other.key[0] ^= 1;
  EXPECT_FALSE(fetch(loop, other)) << "another key is another name";
  other = place;
  other.host = 2;
  EXPECT_FALSE(fetch(loop, other));
  Result<std::shared_ptr<Listener>> again = fail(Code::InternalError, "");
  loop.run([&] { again = offerShared(loop.reactor, place, memory.get()); });
  EXPECT_FALSE(again) << "the name is taken";
  loop.run([&] { (*offer)->close(); });
  EXPECT_FALSE(fetch(loop, place)) << "the offer is over";
}

/// Cut off after every byte, of noise and of what looks right: nobody of the job notices, and no stranger gets the memory.
TEST(Share, StrangersGetNothingAndDelayNobody) {
  Offer offer;
  const auto doors = ownDoors();
  ASSERT_EQ(doors.size(), 1U);
  std::mt19937 random(20261129);
  std::vector<UniqueFd> strangers;
  const std::array<std::optional<uint64_t>, 3> topics{std::nullopt, offer.place.number, offer.place.number + 1};
  for (const auto& topic : topics) {
    const size_t whole = handshake(topic, random).size();
    for (size_t bytes = 0; bytes <= whole; ++bytes) {
      strangers.push_back(knock(doors.front()));
      ASSERT_TRUE(strangers.back());
      const auto said = handshake(topic, random);
      say(strangers.back(), std::span(said).first(bytes));
      if (bytes % 3 == 0) strangers.pop_back();  // others stay
      if (bytes % 8 != 0) continue;
      const auto began = std::chrono::steady_clock::now();
      const auto fd = fetch(offer.loop, offer.place);
      ASSERT_TRUE(fd) << fd.error().text();
      EXPECT_EQ(markOf(*fd), 9);
      EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(1000));
    }
  }
  for (const UniqueFd& stranger : strangers) EXPECT_FALSE(hasDescriptor(stranger));
}

/// More than are let in at a time, all of whom stay.
TEST(Share, ACrowdOfStrangersDelaysTheJobByLittle) {
  constexpr rlim_t kNeeded = 2 * (Listener::kMostPending + 500) + 200;  // both ends
  rlimit descriptors{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
  if (descriptors.rlim_cur < kNeeded) GTEST_SKIP() << "at most " << descriptors.rlim_cur << " descriptors are allowed here";
  Offer offer;
  const Door door = ownDoors().at(0);
  std::vector<UniqueFd> crowd;
  for (size_t i = 0; i < Listener::kMostPending + 500; ++i) crowd.push_back(knock(door));
  const auto connected = std::count_if(crowd.begin(), crowd.end(), [](const UniqueFd& fd) { return static_cast<bool>(fd); });
  ASSERT_GT(static_cast<size_t>(connected), Listener::kMostPending) << "no crowd";
  const auto began = std::chrono::steady_clock::now();
  const auto fd = fetch(offer.loop, offer.place, milliseconds(10'000));
  ASSERT_TRUE(fd) << fd.error().text();
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(3000));
}

/// Its thread had no time for longer than the door waits for anybody: the door has let go of it, and it comes again.
TEST(Share, WhoWasSlowComesAgain) {
  Offer offer;
  Loop guest;
  std::promise<Result<UniqueFd>> done;
  auto outcome = done.get_future();
  guest.reactor.post([&] {
    fetchShared(guest.reactor, offer.place, milliseconds(20'000), [&](Result<UniqueFd> fd) { done.set_value(std::move(fd)); });
    std::this_thread::sleep_for(Listener::kHandshakeLimit + milliseconds(500));
  });
  const auto fd = outcome.get();
  ASSERT_TRUE(fd) << fd.error().text();
  EXPECT_EQ(markOf(*fd), 9);
}

/// The kernel refuses who comes to a Unix socket whose queue is full: he comes again.
TEST(Share, WhoFindsTheQueueFullWaits) {
  Offer offer;
  Loop other;
  const Door door = ownDoors().at(0);
  ASSERT_EQ(listen(door.fd, 1), 0);
  std::promise<void> stands;
  std::promise<void> goesOn;
  offer.loop.reactor.post([&] {  // nobody is let in meanwhile
    stands.set_value();
    goesOn.get_future().wait();
  });
  stands.get_future().wait();
  std::vector<UniqueFd> queue;
  do {
    queue.push_back(knock(door));
  } while (queue.back() && queue.size() < 100);
  EXPECT_FALSE(queue.back()) << "it is full";
  auto outcome = std::async(std::launch::async, [&] { return fetch(other, offer.place, milliseconds(10'000)); });
  EXPECT_EQ(outcome.wait_for(milliseconds(100)), std::future_status::timeout);
  goesOn.set_value();
  const auto fd = outcome.get();
  ASSERT_TRUE(fd) << fd.error().text();
  EXPECT_EQ(markOf(*fd), 9);
}

/// While communicators are made, by processes of two hosts: the strangers come as soon as there is a door.
TEST(Share, StrangersDuringJobs) {
  constexpr int32_t kRanks = 10, kJobs = 20, kVisits = 2 * kJobs;
  std::atomic<bool> isOver{false};
  std::atomic<int> visits{0};
  std::thread stranger([&] {
    std::mt19937 random(7);
    std::deque<UniqueFd> staying;
    for (size_t next = 0; !isOver;) {
      for (const Door& door : ownDoors()) {
        UniqueFd fd = knock(door);
        if (!fd) continue;
        ++visits;
        const auto said = handshake(next % 3 == 0 ? std::nullopt : std::optional<uint64_t>(random()), random);
        say(fd, std::span(said).first(next++ % (said.size() + 1)));
        if (random() % 2 == 0) staying.push_back(std::move(fd));
        if (staying.size() > 100) staying.pop_front();
      }
    }
  });
  for (int job = 0; job < kJobs || (visits < kVisits && job < 20 * kJobs); ++job) {
    const auto began = std::chrono::steady_clock::now();
    std::vector<std::unique_ptr<Service>> services;
    for (int32_t p = 0; p < kRanks; ++p) services.push_back(std::make_unique<Service>(worldOf("host" + std::to_string(p % 2))));
    const auto id = services[0]->makeId();
    ASSERT_TRUE(id);
    std::vector<Joined> joined;
    for (int32_t rank = 0; rank < kRanks; ++rank) joined.push_back(join(*services[static_cast<size_t>(rank)], *id, kRanks, rank));
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const Outcome outcome = wait(*joined[static_cast<size_t>(rank)]);
      EXPECT_TRUE(outcome) << outcome.error().text();
      if (outcome) {
        EXPECT_EQ(markOf((*outcome)->shared), rank % 2) << "of the first process of the host";
      }
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(3000));
  }
  isOver = true;
  stranger.join();
  EXPECT_GE(visits.load(), kVisits);
}

}  // namespace
}  // namespace tutti::bootstrap::share_test
