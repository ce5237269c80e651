#include "bootstrap/service.h"

#include <fcntl.h>

#include <set>

#include "bootstrap/mesh.h"
#include "play.h"

namespace tutti::bootstrap::service_test {
namespace {

using namespace play;

std::set<int> openDescriptors() {
  std::set<int> all;
  for (int fd = 0; fd < 4096; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) all.insert(fd);
  }
  return all;
}

void expectRoster(const Roster& roster, int32_t ranks) {
  ASSERT_EQ(roster.ranks, ranks);
  for (int32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(roster.notes[static_cast<size_t>(rank)], noteOf(rank)) << rank;
  int32_t last = -1;
  for (const ProcessInfo& process : roster.processes) {
    EXPECT_GT(process.ranks.front(), last) << "processes are in the order of their first rank";
    last = process.ranks.front();
    for (const int32_t rank : process.ranks) EXPECT_EQ(&roster.process(roster.processOf[static_cast<size_t>(rank)]), &process);
  }
}

TEST(Service, EveryIdIsNewAndSmall) {
  Service service(worldOf("h"));
  std::set<UniqueIdBytes> ids;
  std::set<uint64_t> hashes;
  for (int i = 0; i < 100; ++i) {
    const auto id = service.makeId();
    ASSERT_TRUE(id);
    EXPECT_TRUE(ids.insert(*id).second);
    EXPECT_TRUE(hashes.insert(Service::hashOf(*id)).second);
  }
}

TEST(Service, ThreadsMeetWithoutASocketOrAThread) {
  Service service(worldOf("h"));
  const auto id = service.makeId();
  ASSERT_TRUE(id);
  constexpr int32_t kRanks = 512;
  const auto began = std::chrono::steady_clock::now();
  std::vector<Joined> joined;
  for (int32_t rank = kRanks - 1; rank >= 0; --rank) joined.push_back(join(service, *id, kRanks, rank));
  std::vector<std::shared_ptr<const Roster>> rosters;
  for (const Joined& one : joined) {
    const auto outcome = one->poll();
    ASSERT_TRUE(outcome && *outcome);
    rosters.push_back(**outcome);
  }
  const auto took = std::chrono::steady_clock::now() - began;
  std::printf("512 ranks: %.2f ms\n", std::chrono::duration<double, std::milli>(took).count());
#if !defined(TUTTI_SANITIZED)
  EXPECT_LT(took, milliseconds(100));
#endif
  expectRoster(*rosters[0], kRanks);
  for (const auto& roster : rosters) EXPECT_EQ(roster, rosters[0]) << "one for all ranks of the process";
  EXPECT_EQ(rosters[0]->processes.size(), 1U);
  EXPECT_FALSE(rosters[0]->shared);
  EXPECT_FALSE(rosters[0]->mesh);
}

TEST(Service, NoThreadAndNoDescriptorStaysBehind) {
  const std::set<int> before = openDescriptors();
  Service a(worldOf("h"));
  Service b(worldOf("h"));
  {
    const auto id = a.makeId();
    const Joined first = join(a, *id, 2, 0);
    const Joined second = join(b, *id, 2, 1);
    ASSERT_TRUE(wait(*first));
    ASSERT_TRUE(wait(*second));
    EXPECT_FALSE(a.isIdle());
    for (const int fd : openDescriptors()) {
      if (before.count(fd) == 0) {
        EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << "descriptor " << fd << " would outlive an exec";
      }
    }
    EXPECT_GT(openDescriptors().size(), before.size() + 8);
  }
  EXPECT_TRUE(becomes([&] { return a.isIdle() && b.isIdle(); }));
  EXPECT_TRUE(becomes([&] { return openDescriptors() == before; })) << openDescriptors().size() << " instead of " << before.size();
}

/// Without a descriptor the kernel's boot id is not to be had: that is not what a process is known by ever after.
TEST(Service, AHostThatWasNotKnownOnceIsKnownLater) {
  bool isKnown = false;
  World world = worldOf("h");
  world.host = [&] { return HostFacts{"h", isKnown ? "boot" : "", 1}; };
  Service a(worldOf("h"));
  Service b(world);
  for (const size_t hosts : {2U, 1U}) {
    const auto id = a.makeId();
    const Joined first = join(a, *id, 2, 0);
    const Joined second = join(b, *id, 2, 1);
    const Outcome outcome = wait(*first);
    ASSERT_TRUE(outcome);
    ASSERT_TRUE(wait(*second));
    EXPECT_EQ((*outcome)->hosts.size(), hosts);
    isKnown = true;
  }
}

TEST(Service, SeveralProcessesOnSeveralHosts) {
  constexpr int32_t kProcesses = 12;
  constexpr int32_t kEach = 3;
  std::vector<std::unique_ptr<Service>> services;
  for (int32_t p = 0; p < kProcesses; ++p) services.push_back(std::make_unique<Service>(worldOf("host" + std::to_string(p % 4))));
  const auto id = services[5]->makeId();  // not the process of rank 0
  ASSERT_TRUE(id);
  std::vector<Joined> joined;
  for (int32_t rank = 0; rank < kProcesses * kEach; ++rank)
    joined.push_back(join(*services[rank % kProcesses], *id, kProcesses * kEach, rank));
  std::vector<std::shared_ptr<const Roster>> rosters;
  for (const Joined& one : joined) {
    auto outcome = wait(*one);
    ASSERT_TRUE(outcome) << outcome.error().text();
    rosters.push_back(*outcome);
  }
  for (int32_t rank = 0; rank < kProcesses * kEach; ++rank) {
    const Roster& roster = *rosters[static_cast<size_t>(rank)];
    expectRoster(roster, kProcesses * kEach);
    ASSERT_EQ(roster.processes.size(), static_cast<size_t>(kProcesses));
    ASSERT_EQ(roster.hosts.size(), 4U);
    EXPECT_EQ(roster.ownProcess, rank % kProcesses);
    EXPECT_EQ(roster.ownHost, rank % 4);
    EXPECT_EQ(roster.hosts[static_cast<size_t>(rank % 4)].name, "host" + std::to_string(rank % 4));
    EXPECT_EQ(markOf(roster.shared), rank % 4) << "made by the host's first process, which has that rank first";
    EXPECT_EQ(roster.number, rosters[0]->number);
    ASSERT_TRUE(roster.mesh);
    EXPECT_NE(fcntl(roster.shared.get(), F_GETFD) & FD_CLOEXEC, 0);
  }
}

}  // namespace
}  // namespace tutti::bootstrap::service_test
