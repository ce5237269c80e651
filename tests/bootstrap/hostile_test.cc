// Strangers at the doors: whatever they send, and however slowly, the job goes on.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <deque>
#include <random>

#include "../observe/capture_log.h"
#include "bootstrap/mesh.h"
#include "bootstrap/seal.h"
#include "play.h"

namespace tutti::bootstrap::hostile_test {
namespace {

using namespace play;

UniqueFd connectTo(const Address& address) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress system = toSocketAddress(address);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&system.storage), system.size) != 0) fd.reset();
  return fd;
}

Address doorOf(const UniqueIdBytes& id) { return UniqueId::decode(id)->addresses.at(0); }

void sendAll(const UniqueFd& fd, std::span<const std::byte> bytes) { (void)send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }

/// The other side has closed: a read ends.
bool isClosedWithin(const UniqueFd& fd, milliseconds limit) {
  pollfd poller{fd.get(), POLLIN, 0};
  char byte = 0;
  return poll(&poller, 1, static_cast<int>(limit.count())) == 1 && recv(fd.get(), &byte, 1, MSG_DONTWAIT) <= 0;
}

/// Random bytes, greetings that are cut or changed, proofs that are wrong, and whole frames that nobody sealed.
void disturb(const Address& door, uint64_t topic, std::mt19937& random) {
  const UniqueFd fd = connectTo(door);
  if (!fd) return;
  Greeting greeting;
  greeting.topic = random() % 4 == 0 ? random() : topic;
  greeting.purpose = static_cast<Purpose>(1 + random() % 4);
  fillRandom(greeting.nonce);
  const auto bytes = greeting.encode();
  const auto how = random() % 5;
  if (how == 0) return sendAll(fd, std::span(bytes).first(random() % bytes.size()));
  if (how <= 2) {
    std::vector<std::byte> any(random() % 4096);
    for (std::byte& one : any) one = static_cast<std::byte>(random());
    if (how == 2) std::copy_n(bytes.begin(), std::min(any.size(), bytes.size()), any.begin());
    return sendAll(fd, any);
  }
  sendAll(fd, bytes);
  std::array<std::byte, kAnswerBytes> answer;
  pollfd poller{fd.get(), POLLIN, 0};
  if (poll(&poller, 1, 50) != 1 || recv(fd.get(), answer.data(), answer.size(), 0) <= 0) return;
  if (how == 3) return sendAll(fd, std::span(answer).last(sizeof(Proof)));  // the acceptor's own proof, sent back
  std::vector<std::byte> proof(sizeof(Proof) + random() % 300);
  for (std::byte& one : proof) one = static_cast<std::byte>(random());
  sendAll(fd, proof);
}

TEST(Hostile, NoiseAtEveryDoorDuringJobs) {
  ASSERT_TRUE(prepareCrypto().ok());
  std::atomic<bool> isOver{false};
  std::atomic<int> disturbances{0};
  for (int job = 0; job < 5; ++job) {
    std::vector<std::unique_ptr<Service>> services;
    for (int p = 0; p < 6; ++p) services.push_back(std::make_unique<Service>(worldOf("host" + std::to_string(p % 2))));
    const auto id = services[0]->makeId();
    ASSERT_TRUE(id);
    std::vector<Joined> joined;
    for (int32_t rank = 0; rank < 5; ++rank) joined.push_back(join(*services[static_cast<size_t>(rank)], *id, 6, rank));
    isOver = false;
    std::thread stranger([&, job] {
      std::mt19937 random(static_cast<uint32_t>(job));
      while (!isOver) {
        disturb(doorOf(*id), Service::hashOf(*id), random);
        ++disturbances;
      }
    });
    std::this_thread::sleep_for(milliseconds(30));
    joined.push_back(join(*services[5], *id, 6, 5));
    std::vector<std::shared_ptr<const Roster>> rosters;
    for (const Joined& one : joined) {
      const Outcome outcome = wait(*one);
      EXPECT_TRUE(outcome) << outcome.error().text();
      if (outcome) rosters.push_back(*outcome);
    }
    isOver = true;
    stranger.join();
    ASSERT_EQ(rosters.size(), 6U);
    std::mt19937 random(99);
    std::vector<std::shared_ptr<Exchange>> exchanges;
    for (const auto& roster : rosters) {
      for (int i = 0; i < 10; ++i) disturb(roster->process(roster->ownProcess).addresses.at(0), roster->number, random);
      exchanges.push_back(roster->mesh->barrier(milliseconds(10'000)));
    }
    for (const auto& exchange : exchanges)
      EXPECT_TRUE(becomes([&] { return exchange->poll().has_value() && exchange->poll()->has_value(); }));
  }
  EXPECT_GT(disturbances.load(), 20);
}

TEST(Hostile, WhoSaysNothingOrLittleIsDroppedAndDelaysNobody) {
  Service a(worldOf("h"));
  Service b(worldOf("h"));
  const auto id = a.makeId();
  const Joined first = join(a, *id, 2, 0);
  const UniqueFd silent = connectTo(doorOf(*id));
  const UniqueFd slow = connectTo(doorOf(*id));
  ASSERT_TRUE(silent && slow);
  const auto bytes = Greeting{}.encode();
  sendAll(slow, std::span(bytes).first(1));
  const auto began = std::chrono::steady_clock::now();
  const Joined second = join(b, *id, 2, 1);
  ASSERT_TRUE(wait(*first));
  ASSERT_TRUE(wait(*second));
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(1000));
  for (size_t i = 1; i < 40; ++i) {  // a byte now and then does not buy more time
    sendAll(slow, std::span(bytes).subspan(i, 1));
    if (isClosedWithin(slow, milliseconds(200))) break;
  }
  EXPECT_TRUE(isClosedWithin(slow, milliseconds(100)));
  EXPECT_TRUE(isClosedWithin(silent, milliseconds(2000)));
}

TEST(Hostile, ACrowdOfStrangersDelaysTheJobByLittle) {
  Service a(worldOf("h"));
  Service b(worldOf("h"));
  const auto id = a.makeId();
  const Joined first = join(a, *id, 2, 0);
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 1500; ++i) crowd.push_back(connectTo(doorOf(*id)));
  const auto began = std::chrono::steady_clock::now();
  const Joined second = join(b, *id, 2, 1);
  ASSERT_TRUE(wait(*first));
  ASSERT_TRUE(wait(*second));
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(3000));
}

/// A thousand and more a second, each of whom stays. Who comes late comes late: a flood that made up for the moments in which the
/// machine did not run it would be of any rate, and a door takes in at most kMostPending strangers in each kSlow.
TEST(Hostile, AFloodOfStrangersDelaysTheJobByLittle) {
#if defined(TUTTI_SANITIZED)
  constexpr milliseconds kMost(10'000);  // to drop a stranger is several times as much work there: a third as many come
  constexpr std::chrono::microseconds kPace(1800);
#else
  constexpr milliseconds kMost(2000);
  constexpr std::chrono::microseconds kPace(600);
#endif
  std::atomic<bool> isOver{false};
  std::atomic<int> visits{0};
  Service a(worldOf("h"));
  const auto lasting = a.makeId();
  std::thread flood([&] {
    std::deque<UniqueFd> staying;
    auto next = std::chrono::steady_clock::now();
    while (!isOver) {
      staying.push_back(connectTo(doorOf(*lasting)));
      if (staying.size() > 1500) staying.pop_front();
      ++visits;
      next = std::max(next, std::chrono::steady_clock::now()) + kPace;
      std::this_thread::sleep_until(next);
    }
  });
  EXPECT_TRUE(becomes([&] { return visits > 1200; }));
  Service b(worldOf("h"));
  const auto began = std::chrono::steady_clock::now();
  for (int job = 0; job < 10; ++job) {
    const auto id = a.makeId();
    const Joined first = join(a, *id, 2, 0);
    const Joined second = join(b, *id, 2, 1);
    EXPECT_TRUE(wait(*first));
    EXPECT_TRUE(wait(*second));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, kMost);
  isOver = true;
  flood.join();
}

TEST(Hostile, StrangersAreReportedOnceASecond) {
  const observe::play::CaptureLog log("INFO");
  Service a(worldOf("h"));
  const auto id = a.makeId();
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 60; ++i) {
    const UniqueFd fd = connectTo(doorOf(*id));
    ASSERT_TRUE(fd);
    sendAll(fd, std::vector<std::byte>(200, std::byte{'x'}));
    EXPECT_TRUE(isClosedWithin(fd, milliseconds(2000)));
    std::this_thread::sleep_for(milliseconds(20));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  EXPECT_EQ(log.count("Bootstrap: dropped 1 connection: "), 1U) << log.text();
  EXPECT_GE(log.count("connections, the last because"), 1U) << log.text();
  EXPECT_LE(static_cast<double>(log.count("Bootstrap: dropped ")), seconds + 1) << log.text();
}

TEST(Hostile, AnIdWithAnotherSecretGetsNothing) {
  Service a(worldOf("h"));
  Service b(worldOf("h"));
  const auto id = a.makeId();
  const Joined first = join(a, *id, 2, 0);
  UniqueId stolen = *UniqueId::decode(*id);  // all of it but the secret can be guessed or overheard
  stolen.secret[0] ^= 1;
  const Outcome outcome = wait(*join(b, stolen.encode(), 2, 1));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Code::InvalidUsage);
  EXPECT_FALSE(first->poll());
  const Joined second = join(b, *id, 2, 1);
  EXPECT_TRUE(wait(*first));
  EXPECT_TRUE(wait(*second));
}

TEST(Hostile, AddressesThatLeadNowhereOrAstrayCostLittle) {
  Service a(worldOf("h"));
  Service b(worldOf("h"));
  const UniqueFd astray(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // accepts, and says nothing for ever
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(astray.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(astray.get(), 8), 0);
  ASSERT_EQ(getsockname(astray.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const auto id = a.makeId();
  UniqueId changed = *UniqueId::decode(*id);
  Address refuses = changed.addresses[0];
  refuses.port = 1;
  changed.addresses = {*fromSocketAddress(reinterpret_cast<const sockaddr&>(address)), refuses, changed.addresses[0]};
  const Joined first = join(a, *id, 2, 0);
  const auto began = std::chrono::steady_clock::now();
  const Joined second = join(b, changed.encode(), 2, 1);
  ASSERT_TRUE(wait(*second)) << wait(*second).error().text();
  ASSERT_TRUE(wait(*first));
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(2000));
}

/// For its life, so many descriptors and no more.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit now{most, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &now);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(Hostile, WithoutDescriptorsThereIsAnErrorOrAWaitNeverACrash) {
#if defined(TUTTI_SANITIZED) && !defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "without descriptors the sanitizer cannot probe memory, and takes what it cannot probe for broken";
#endif
  const UniqueFd next(dup(0));
  for (int spare = 0; spare < 24; ++spare) {
    Service a(worldOf("h"));
    Service b(worldOf("h"));
    Joined first;
    Joined second;
    {
      const DescriptorLimit limit(static_cast<rlim_t>(next.get() + spare));
      const auto id = a.makeId();
      if (!id) continue;
      first = join(a, *id, 2, 0);
      second = join(b, *id, 2, 1);
      (void)wait(*second, milliseconds(150));
    }
    const auto early = second->poll();
    if (early && !*early) {
      EXPECT_EQ(early->error().code() == Code::SystemError || early->error().code() == Code::RemoteError, true) << early->error().text();
      first->end(early->error());  // who cannot reach anybody cannot tell anybody
    }
    ASSERT_TRUE(becomes([&] { return first->poll().has_value() && second->poll().has_value(); }))
        << spare << ": " << first->describeMissing();
    EXPECT_EQ(first->poll()->has_value(), second->poll()->has_value()) << spare;
  }
}

}  // namespace
}  // namespace tutti::bootstrap::hostile_test
