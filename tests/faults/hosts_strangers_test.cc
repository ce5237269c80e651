// Strangers at the doors of a running job on several hosts: its listening sockets get noise, halves of greetings and silence. Nobody
// of the job notices. The bootstrap's door is there as long as the job; those for data are while connections are made.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults::hosts_strangers_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;

/// Ports at which this process listens, over IPv4: all TCP sockets of the network namespace that listen and are ours.
std::set<uint16_t> ownDoors() {
  std::set<uint16_t> doors;
  for (int fd = 3; fd < 256; ++fd) {
    int listens = 0;
    socklen_t length = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) continue;
    sockaddr_in address{};
    length = sizeof address;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 && address.sin_family == AF_INET)
      doors.insert(ntohs(address.sin_port));
  }
  return doors;
}

int knock(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

/// Visits until it is told to stop: says nothing, or noise of any length, and stays a while, hangs up, or resets the connection. Wherever
/// this process listens, and at once where it does not for long.
class Strangers {
 public:
  explicit Strangers(const std::set<uint16_t>& lasting) : thread_([this, lasting] { run(lasting); }) {}
  ~Strangers() {
    stop_ = true;
    thread_.join();
  }
  int visits() const { return visits_; }
  int visitsOfBriefDoors() const { return brief_; }

 private:
  void run(const std::set<uint16_t>& lasting) {
    std::mt19937 random(20261121);
    std::vector<int> staying;
    while (!stop_) {
      std::vector<uint16_t> brief;
      const std::set<uint16_t> doors = ownDoors();
      std::set_difference(doors.begin(), doors.end(), lasting.begin(), lasting.end(), std::back_inserter(brief));
      const std::vector<uint16_t> choice = brief.empty() ? std::vector(doors.begin(), doors.end()) : brief;
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

/// While communicators are made, used, divided and ended.
TEST(HostsStrangers, NeitherDelayNorEndAJob) {
  constexpr int kRanks = 3;
  ProcessRanks children(kRanks, [](Self& self) {
    playHost(self.index());
    ncclComm_t lasting = nullptr;
    ASSERT_EQ(ncclCommInitRank(&lasting, kRanks, self.id(), self.index()), ok) << lastError();
    EXPECT_EQ(sumOnce(lasting, kRanks), ok);
    const std::set<uint16_t> doors = ownDoors();
    EXPECT_EQ(doors.size(), 1u) << "all connections stand: the bootstrap alone listens";
    auto strangers = std::make_unique<Strangers>(doors);
    const Stopwatch watch;
    for (int i = 0; i < 40; ++i) {
      for (const size_t size : {1ul, 3000ul, 300000ul}) ASSERT_EQ(sumOnce(lasting, kRanks, size), ok) << lastError();
      ncclComm_t child = nullptr;
      ASSERT_EQ(ncclCommSplit(lasting, 0, -self.index(), &child, nullptr), ok) << lastError();
      EXPECT_EQ(sumOnce(child, kRanks, 20000), ok) << lastError();
      EXPECT_EQ(ncclCommDestroy(child), ok);
    }
    EXPECT_LT(watch.seconds(), 10 * kSlow);
    EXPECT_GT(strangers->visits(), 50);
    EXPECT_GT(strangers->visitsOfBriefDoors(), 10);
    strangers.reset();
    EXPECT_EQ(ncclCommDestroy(lasting), ok);
  });
  children.expectAllWell();
}

}  // namespace
}  // namespace tutti::faults::hosts_strangers_test
