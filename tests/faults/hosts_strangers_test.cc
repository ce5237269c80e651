// Strangers at the doors of a running job on several hosts, over IPv4 and over IPv6: its listening sockets get noise and silence, and those
// that a process of the job dials get what it is about to say itself, cut off somewhere, a moment before. Nobody of the job notices. The
// bootstrap's door is there as long as the job; those for data are while connections are made.
//
// What is said is overheard in connect(), send() and sendmsg(), which the library finds here: this test is a program of its own.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "faults/hosts.h"
#include "faults/networks.h"

namespace tutti::faults::hosts_strangers_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr size_t kBootstrapGreeting = 48, kDataGreeting = 72;  // bytes: bootstrap/seal.h, transport/socket/handshake.h
using Self = ProcessRanks::Self;

/// An address of either version, with its port.
struct Door {
  sockaddr_storage address{};
  socklen_t length = 0;

  static Door of(const sockaddr* from) {
    Door door;
    door.length = from->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    std::memcpy(&door.address, from, door.length);
    return door;
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  bool isV6() const { return address.ss_family == AF_INET6; }
  friend bool operator<(const Door& a, const Door& b) { return std::memcmp(&a.address, &b.address, sizeof a.address) < 0; }
};
using Doors = std::set<Door>;

/// Where this process listens: all TCP sockets of the network namespace that listen and are ours.
Doors ownDoors() {
  Doors doors;
  for (int fd = 3; fd < 256; ++fd) {
    int listens = 0;
    socklen_t length = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) continue;
    Door door;
    door.length = sizeof door.address;
    const bool isKnown = getsockname(fd, reinterpret_cast<sockaddr*>(&door.address), &door.length) == 0;
    if (isKnown && (door.isV6() || door.address.ss_family == AF_INET)) doors.insert(door);
  }
  return doors;
}

thread_local bool isStranger = false;  // what this thread does is not overheard

int knock(const Door& door) {
  const int fd = socket(door.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, door.get(), door.length) == 0) return fd;
  close(fd);
  return -1;
}

/// Goes where this process dials, and says what it says, but not all of it; or all of it, which is worth nothing a second time. Before
/// each of its first two messages, so that the other side has a stranger's half first. Any thread.
class Mimics {
 public:
  Mimics() { current = this; }
  void end() {
    const std::lock_guard lock(mutex_);
    current = nullptr;
    for (const int fd : staying_) close(fd);
    dialled_.clear();
  }
  Mimics(const Mimics&) = delete;
  Mimics& operator=(const Mimics&) = delete;
  /// With how many different numbers of bytes it came of a greeting of that size and the proof behind it.
  size_t lengthsTried(size_t greeting) {
    const std::lock_guard lock(mutex_);
    return tried_[greeting].size();
  }

  void onConnect(int fd, const sockaddr* to) {
    const std::lock_guard lock(mutex_);
    dialled_.erase(fd);
    if (to->sa_family == AF_INET || to->sa_family == AF_INET6) dialled_[fd].door = Door::of(to);
  }
  void onSend(int fd, std::span<const iovec> parts) {
    const std::lock_guard lock(mutex_);
    const auto found = dialled_.find(fd);
    if (found == dialled_.end()) return;
    Dialled& dialled = found->second;
    const size_t before = dialled.said.size();
    for (const iovec& part : parts) {
      const char* const bytes = static_cast<const char*>(part.iov_base);
      dialled.said.insert(dialled.said.end(), bytes, bytes + part.iov_len);
    }
    if (dialled.greeting == 0) dialled.greeting = dialled.said.size();
    isStranger = true;
    for (size_t v = 0; v < kVisits; ++v) visit(dialled, before);
    isStranger = false;
    if (++dialled.messages == kMessages) dialled_.erase(found);
  }

  static inline std::atomic<Mimics*> current = nullptr;

 private:
  struct Dialled {
    Door door;
    size_t messages = 0;
    size_t greeting = 0;  ///< bytes
    std::vector<char> said;
  };
  static constexpr size_t kMessages = 2;      // a greeting and a proof: what comes later is for those who know each other
  static constexpr size_t kVisits = 3;        // before each
  static constexpr size_t kMostStaying = 40;  // of each process: together they do not fill a door

  /// With all that was said before, and the next length of what is new.
  void visit(const Dialled& dialled, size_t before) {
    const size_t fresh = dialled.said.size() - before;
    const size_t bytes = before + 1 + next_[{dialled.greeting, before}]++ % fresh;
    const int fd = knock(dialled.door);
    if (fd < 0) return;
    (void)send(fd, dialled.said.data(), bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    tried_[dialled.greeting].insert(bytes);
    if (bytes % 2 == 1) {
      close(fd);
      return;
    }
    staying_.push_back(fd);
    if (staying_.size() <= kMostStaying) return;
    close(staying_.front());
    staying_.pop_front();
  }

  std::mutex mutex_;
  std::map<int, Dialled> dialled_;
  std::map<std::pair<size_t, size_t>, size_t> next_;  // by the size of the greeting and what goes before
  std::map<size_t, std::set<size_t>> tried_;
  std::deque<int> staying_;
};

/// Visits until it is told to stop: says nothing, or noise of any length, and stays a while, hangs up, or resets the connection. Wherever
/// this process listens, and at once where it does not for long.
class Strangers {
 public:
  explicit Strangers(const Doors& lasting) : thread_([this, lasting] { run(lasting); }) {}
  ~Strangers() {
    stop_ = true;
    thread_.join();
  }
  int visits() const { return visits_; }
  int visitsOfBriefDoors() const { return brief_; }

 private:
  void run(const Doors& lasting) {
    isStranger = true;
    std::mt19937 random(20261121);
    std::vector<int> staying;
    while (!stop_) {
      std::vector<Door> brief;
      const Doors doors = ownDoors();
      std::set_difference(doors.begin(), doors.end(), lasting.begin(), lasting.end(), std::back_inserter(brief));
      const std::vector<Door> choice = brief.empty() ? std::vector(doors.begin(), doors.end()) : brief;
      const int fd = choice.empty() ? -1 : knock(choice[random() % choice.size()]);
      if (fd < 0) continue;
      ++visits_;
      if (!brief.empty()) ++brief_;
      std::vector<char> noise(random() % 3 == 0 ? 0 : random() % 3000);
      for (char& byte : noise) byte = static_cast<char>(random());
      if (!noise.empty()) (void)send(fd, noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (random() % 4 == 0) {
        const linger atOnce{1, 0};
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &atOnce, sizeof atOnce);
      }
      if (random() % 2 == 0) {
        close(fd);
      } else {
        staying.push_back(fd);
      }
      if (staying.size() > 100) {
        close(staying.front());
        staying.erase(staying.begin());
      }
      if (brief.empty()) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    }
    for (const int fd : staying) close(fd);
  }

  std::atomic<bool> stop_{false};
  std::atomic<int> visits_{0};
  std::atomic<int> brief_{0};
  std::thread thread_;
};

constexpr int kRanks = 3;

/// Communicators are made, used, divided and ended meanwhile.
void liveAmongStrangers(Self& self, bool isV6) {
  Mimics* const mimics = new Mimics;  // for good: the library's threads may be about to ask it
  ncclComm_t lasting = nullptr;
  ASSERT_EQ(ncclCommInitRank(&lasting, kRanks, self.id(), self.index()), ok) << lastError();
  EXPECT_EQ(sumOnce(lasting, kRanks), ok);
  const Doors doors = ownDoors();
  EXPECT_EQ(std::ranges::count(doors, isV6, &Door::isV6), 1) << "all connections stand: the bootstrap alone listens";
  EXPECT_LE(doors.size(), isV6 ? 1u : 2u) << "loopback may have both";
  auto strangers = std::make_unique<Strangers>(doors);
  const Stopwatch watch;
  for (int i = 0; i < 40; ++i) {
    for (const size_t size : {1ul, 3000ul, 300000ul}) ASSERT_EQ(sumOnce(lasting, kRanks, size), ok) << lastError();
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(lasting, 0, -self.index(), &child, nullptr), ok) << lastError();
    EXPECT_EQ(sumOnce(child, kRanks, 20000), ok) << lastError();
    EXPECT_EQ(ncclCommDestroy(child), ok);
    if (i % 2 == 0) continue;
    ncclComm_t fresh = nullptr;
    ASSERT_EQ(ncclCommInitRank(&fresh, kRanks, self.freshId(), self.index()), ok) << lastError();
    EXPECT_EQ(sumOnce(fresh, kRanks, 20000), ok) << lastError();
    EXPECT_EQ(ncclCommDestroy(fresh), ok);
  }
  EXPECT_LT(watch.seconds(), 10 * kSlow);
  EXPECT_GT(strangers->visits(), 50);
  EXPECT_GT(strangers->visitsOfBriefDoors(), 10);
  strangers.reset();
  // 32 bytes of proof follow a greeting: every length of both was tried.
  EXPECT_EQ(mimics->lengthsTried(kBootstrapGreeting), kBootstrapGreeting + 32);
  EXPECT_EQ(mimics->lengthsTried(kDataGreeting), kDataGreeting + 32);
  mimics->end();
  EXPECT_EQ(ncclCommDestroy(lasting), ok);
}

TEST(HostsStrangers, NeitherDelayNorEndAJob) {
  ProcessRanks children(kRanks, [](Self& self) {
    playHost(self.index());
    liveAmongStrangers(self, false);
  });
  children.expectAllWell();
}

TEST(HostsStrangers, NeitherDelayNorEndAJobOverV6) {
  const Networks networks(kRanks);
  if (!networks.problem().empty()) GTEST_SKIP() << networks.problem();
  for (int h = 0; h < kRanks; ++h)
    ASSERT_TRUE(networks.run(h, "ip -6 addr add fd00:214::" + std::to_string(h + 1) + "/64 dev eth0 nodad"));
  ProcessRanks children(kRanks, [&](Self& self) {
    ASSERT_TRUE(networks.enter(self.index()));
    playNamedHost(self.index());
    setenv("NCCL_SOCKET_IFNAME", "=eth0", 1);
    setenv("NCCL_SOCKET_FAMILY", "AF_INET6", 1);
    liveAmongStrangers(self, true);
  });
  children.expectAllWell();
}

}  // namespace

template <class Call>
Call* next(const char* name) {
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, name));
}

Mimics* overhears() { return isStranger ? nullptr : Mimics::current.load(); }

}  // namespace tutti::faults::hosts_strangers_test

namespace strangers = tutti::faults::hosts_strangers_test;

extern "C" __attribute__((visibility("default"))) int connect(int fd, const sockaddr* to, socklen_t length) {
  static auto* const real = strangers::next<decltype(connect)>("connect");
  if (auto* const mimics = strangers::overhears()) mimics->onConnect(fd, to);
  return real(fd, to, length);
}

extern "C" __attribute__((visibility("default"))) ssize_t send(int fd, const void* bytes, size_t count, int flags) {
  static auto* const real = strangers::next<decltype(send)>("send");
  const iovec part{const_cast<void*>(bytes), count};
  if (auto* const mimics = strangers::overhears()) mimics->onSend(fd, std::span(&part, 1));
  return real(fd, bytes, count, flags);
}

extern "C" __attribute__((visibility("default"))) ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static auto* const real = strangers::next<decltype(sendmsg)>("sendmsg");
  if (auto* const mimics = strangers::overhears()) mimics->onSend(fd, std::span(message->msg_iov, message->msg_iovlen));
  return real(fd, message, flags);
}
