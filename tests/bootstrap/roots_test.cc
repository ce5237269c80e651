// Where roots are: several ids, NCCL_COMM_ID, many processes.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <random>

#include "bootstrap/mesh.h"
#include "bootstrap/reactor.h"
#include "bootstrap/tree.h"
#include "../observe/capture_log.h"
#include "play.h"

namespace tutti::bootstrap::roots_test {
namespace {

using namespace play;

void expectAll(const std::vector<Joined>& joined, size_t processes) {
  std::shared_ptr<const Roster> first;
  for (const Joined& one : joined) {
    const Outcome outcome = wait(*one);
    ASSERT_TRUE(outcome) << outcome.error().text();
    if (!first) first = *outcome;
    EXPECT_EQ((*outcome)->processes.size(), processes);
    EXPECT_EQ((*outcome)->processOf, first->processOf);
    EXPECT_EQ((*outcome)->number, first->number);
    EXPECT_EQ((*outcome)->commId, first->commId);
    for (size_t rank = 0; rank < joined.size(); ++rank) EXPECT_EQ((*outcome)->notes[rank], noteOf(static_cast<int32_t>(rank)));
  }
}

TEST(SeveralIds, RootsInSeveralProcessesBringTheirPartsTogether) {
  for (const int32_t ids : {2, 3, 7}) {
    constexpr int32_t kRanks = 14;
    std::vector<std::unique_ptr<Service>> services;
    std::vector<UniqueIdBytes> all;
    for (int32_t p = 0; p < kRanks; ++p) services.push_back(std::make_unique<Service>(worldOf("host" + std::to_string(p % 2))));
    for (int32_t i = 0; i < ids; ++i) {
      const auto id = services[static_cast<size_t>(blockAt(i, kRanks, ids).first)]->makeId();
      ASSERT_TRUE(id);
      all.push_back(*id);
    }
    std::vector<Joined> joined;
    for (int32_t rank = 0; rank < kRanks; ++rank)
      joined.push_back(services[static_cast<size_t>(rank)]->join(all, kRanks, Rank(rank), noteOf(rank), sharedMarked(rank)));
    expectAll(joined, kRanks);
  }
}

TEST(SeveralIds, OfOneProcessNeedNoSocket) {
  Service service(worldOf("h"));
  std::vector<UniqueIdBytes> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(*service.makeId());
  std::vector<Joined> joined;
  for (int32_t rank = 0; rank < 8; ++rank) joined.push_back(service.join(ids, 8, Rank(rank), noteOf(rank), nullptr));
  for (const Joined& one : joined) ASSERT_TRUE(one->poll()) << "at once";
  expectAll(joined, 1);
}

TEST(SeveralIds, AProcessMayHaveRanksInSeveralBlocks) {
  Service a(worldOf("h"));
  Service b(worldOf("h"));
  const std::vector<UniqueIdBytes> ids = {*a.makeId(), *b.makeId()};
  std::vector<Joined> joined;
  for (int32_t rank = 0; rank < 6; ++rank)
    joined.push_back((rank % 2 == 0 ? a : b).join(ids, 6, Rank(rank), noteOf(rank), sharedMarked(rank)));
  expectAll(joined, 2);
}

TEST(SeveralIds, TroubleInOneBlockIsHeardInAll) {
  Service a(worldOf("h"));
  Service b(worldOf("h"));
  Service c(worldOf("h"));
  const std::vector<UniqueIdBytes> ids = {*a.makeId(), *b.makeId()};
  const Joined first = a.join(ids, 4, Rank(0), noteOf(0), nullptr);
  const Joined second = a.join(ids, 4, Rank(1), noteOf(1), nullptr);
  const Joined third = b.join(ids, 4, Rank(2), noteOf(2), nullptr);
  const Joined fourth = c.join(ids, 4, Rank(3), noteOf(3), [](const Roster&) -> Result<UniqueFd> { return fail(Code::SystemError, "no"); });
  Joined none;
  const auto over = [&](const Joined& one) { return one->poll().has_value(); };
  ASSERT_TRUE(becomes([&] { return over(first) && over(second) && over(third) && over(fourth); }));
  for (const Joined& one : {first, second, third, fourth}) EXPECT_FALSE(*one->poll()) << "nobody makes the host's memory";
}

TEST(SeveralIds, ARankThatGivesUpEndsItForAllBlocksThoughRanksAreMissing) {
  Service a(worldOf("h"));
  Service b(worldOf("h"));
  Service c(worldOf("h"));
  const std::vector<UniqueIdBytes> ids = {*a.makeId(), *b.makeId()};
  const Joined first = a.join(ids, 4, Rank(0), noteOf(0), nullptr);
  const Joined second = b.join(ids, 4, Rank(1), noteOf(1), nullptr);
  const Joined fourth = c.join(ids, 4, Rank(3), noteOf(3), nullptr);
  ASSERT_TRUE(becomes([&] { return fourth->describeMissing().find("said") != std::string::npos || fourth->poll(); }));
  fourth->end(error(Code::SystemError, "no memory"));
  for (const Joined& one : {second, first}) {
    const Outcome outcome = wait(*one, milliseconds(5000));
    ASSERT_FALSE(outcome);
    EXPECT_NE(outcome.error().text().find("no memory"), std::string::npos) << outcome.error().text();
  }
}

/// Who made the second id is gone: those of the first block wait for its root.
TEST(SeveralIds, ABlockWhoseRootIsGoneEndsItForAllBlocks) {
  Service a(worldOf("h"));
  Service c(worldOf("h", [](Settings& settings) { settings.retries = 1; }));
  std::vector<UniqueIdBytes> ids = {*a.makeId()};
  {
    Service gone(worldOf("h"));
    ids.push_back(*gone.makeId());
  }
  const Joined first = a.join(ids, 4, Rank(0), noteOf(0), nullptr);
  const Joined third = c.join(ids, 4, Rank(2), noteOf(2), nullptr);
  for (const Joined& one : {third, first}) {
    const Outcome outcome = wait(*one, milliseconds(10000));
    ASSERT_FALSE(outcome);
    EXPECT_NE(outcome.error().text().find("cannot reach the root of the unique id"), std::string::npos) << outcome.error().text();
  }
}

TEST(SeveralIds, MustBeTheSameForAllRanksOfAProcess) {
  Service service(worldOf("h"));
  const std::vector<UniqueIdBytes> ids = {*service.makeId(), *service.makeId()};
  const Joined first = service.join(ids, 4, Rank(0), noteOf(0), nullptr);
  const Outcome other = wait(*service.join(std::span(ids).first(1), 4, Rank(1), noteOf(1), nullptr));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), Code::InvalidArgument);
  const Outcome many = wait(*service.join(ids, 1, Rank(0), noteOf(0), nullptr));
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code(), Code::InvalidArgument) << "more ids than ranks";
}

/// A port that is free, and below those that the system gives to connections: other tests make thousands of them.
uint16_t freePort() {
  static std::mt19937 random(static_cast<uint32_t>(getpid()));
  for (;;) {
    Address address = *parseAddress("127.0.0.1");
    address.port = static_cast<uint16_t>(11'000 + random() % 20'000);
    const SocketAddress system = toSocketAddress(address);
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&system.storage), system.size) == 0) return address.port;
  }
}

World fixedWorld(uint16_t port, const std::string& secret, const std::string& host = "h") {
  return worldOf(host, [port, secret](Settings& settings) {
    settings.commId = "127.0.0.1:" + std::to_string(port);
    settings.jobSecret = secret;
  });
}

TEST(NcclCommId, EveryProcessMakesTheSameIdAndItServesAgain) {
  for (const std::string secret : {"", "the secret of this job"}) {
    const uint16_t port = freePort();
    std::vector<std::unique_ptr<Service>> services;
    for (int i = 0; i < 3; ++i) services.push_back(std::make_unique<Service>(fixedWorld(port, secret)));
    for (int round = 0; round < 3; ++round) {
      std::vector<Joined> joined(3);
      for (int32_t rank = 2; rank >= 0; --rank) {  // rank 0 comes last: the others try until it is there
        const auto id = services[static_cast<size_t>(rank)]->makeId();
        ASSERT_TRUE(id);
        EXPECT_EQ(*id, *services[0]->makeId());
        joined[static_cast<size_t>(rank)] = join(*services[static_cast<size_t>(rank)], *id, 3, rank);
      }
      expectAll(joined, 3);
    }
  }
}

TEST(NcclCommId, AnotherSecretIsRefusedAndSaysSo) {
  const uint16_t port = freePort();
  Service right(fixedWorld(port, "right"));
  for (const std::string secret : {"wrong", ""}) {
    Service wrong(fixedWorld(port, secret));
    const Joined first = join(right, *right.makeId(), 2, 0);
    const Outcome outcome = wait(*join(wrong, *wrong.makeId(), 2, 1));
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code(), Code::InvalidUsage);
    EXPECT_NE(outcome.error().text().find("does not know this job's secret"), std::string::npos) << outcome.error().text();
    EXPECT_NE(outcome.error().text().find("TUTTI_JOB_SECRET"), std::string::npos) << outcome.error().text();
    EXPECT_FALSE(first->poll()) << "the job goes on without it";
    Service second(fixedWorld(port, "right"));
    expectAll({first, join(second, *second.makeId(), 2, 1)}, 2);
  }
}

/// By the process of rank 0, however many there are, and however many communicators they make.
TEST(NcclCommId, WithoutASecretTheJobSaysSoOnce) {
  for (const std::string secret : {"", "s"}) {
    const observe::play::CaptureLog log;
    const uint16_t port = freePort();
    std::vector<std::unique_ptr<Service>> services;
    for (int i = 0; i < 4; ++i) services.push_back(std::make_unique<Service>(fixedWorld(port, secret)));
    for (int round = 0; round < 2; ++round) {
      std::vector<Joined> joined;
      for (int32_t rank = 0; rank < 4; ++rank) {
        Service& service = *services[static_cast<size_t>(rank)];
        joined.push_back(join(service, *service.makeId(), 4, rank));
      }
      expectAll(joined, 4);
    }
    EXPECT_EQ(log.count("connections are not authenticated"), secret.empty() ? 1U : 0U) << log.text();
    EXPECT_EQ(log.count("whoever reaches 127.0.0.1:" + std::to_string(port)), secret.empty() ? 1U : 0U) << log.text();
  }
}

TEST(NcclCommId, AnOccupiedPortIsSaid) {
  Service service(fixedWorld(0, ""));
  const UniqueFd taken = [] {
    Address address = *parseAddress("127.0.0.1");
    address.port = freePort();
    const SocketAddress system = toSocketAddress(address);
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&system.storage), system.size), 0);
    EXPECT_EQ(listen(fd.get(), 1), 0);
    return fd;
  }();
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  ASSERT_EQ(getsockname(taken.get(), reinterpret_cast<sockaddr*>(&bound), &size), 0);
  Service occupied(fixedWorld(ntohs(bound.sin_port), "s"));
  const Outcome outcome = wait(*join(occupied, *occupied.makeId(), 2, 0));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Code::InvalidUsage);
  EXPECT_NE(outcome.error().text().find("Address already in use"), std::string::npos) << outcome.error().text();
  EXPECT_FALSE(service.makeId()) << "port 0 is no port";
}

/// Everything that a process sends and receives is counted: connections to the root and what is said on them, the tree, and the memory
/// of a host. A rank's share is logarithmic. Two have more to do, neither as a rank: who has the root, which hears every process and
/// answers it, and the first process of a host, which hands the memory to each of the others there.
TEST(ManyProcesses, FiveHundredMeetWithFewMessagesEach) {
  constexpr int32_t kProcesses = 512;
  for (const int32_t hosts : {16, 512}) {
    std::vector<std::unique_ptr<Service>> services;
    for (int32_t p = 0; p < kProcesses; ++p) services.push_back(std::make_unique<Service>(worldOf("host" + std::to_string(p % hosts))));
    const auto id = services[0]->makeId();
    ASSERT_TRUE(id);
    const auto began = std::chrono::steady_clock::now();
    std::vector<Joined> joined;
    for (int32_t rank = 0; rank < kProcesses; ++rank) joined.push_back(join(*services[static_cast<size_t>(rank)], *id, kProcesses, rank));
    std::vector<std::shared_ptr<const Roster>> rosters;
    for (const Joined& one : joined) {
      const Outcome outcome = wait(*one, milliseconds(60'000));
      ASSERT_TRUE(outcome) << outcome.error().text();
      rosters.push_back(*outcome);
    }
    std::printf("%d processes on %d hosts: %.0f ms\n", kProcesses, hosts,
                std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
    const auto log = static_cast<uint64_t>(std::bit_width(static_cast<uint32_t>(kProcesses)));
    // A root says whom it misses every two seconds, more often in the first few.
    const auto reports = 5 + static_cast<uint64_t>(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    constexpr uint64_t kHandshake = 3;
    constexpr uint64_t kWithRoot = kHandshake + 5;  // Enroll, Welcome, which may come twice, Ready, Go
    uint64_t tables = 0;
    uint64_t most = 0;
    for (int32_t p = 0; p < kProcesses; ++p) {
      const Roster& roster = *rosters[static_cast<size_t>(p)];
      const Mesh::Counters counters = roster.mesh->counters();
      EXPECT_LE(counters.messagesSent, log) << "what a process sends to others";
      EXPECT_EQ(counters.messagesSent, treeChildren(roster, p).size());
      EXPECT_LE(counters.connectionsAccepted, 1U);
      tables += counters.messagesSent;
      const Traffic traffic = services[static_cast<size_t>(p)]->traffic();
      const uint64_t all = traffic.sent + traffic.received;
      const size_t guests = roster.host(roster.ownHost).processes.size() - 1;
      const uint64_t memory = (kHandshake + 1) * (placeInHost(roster, p) == 0 ? guests : 1);
      const uint64_t tree = (kHandshake + 1) * log;
      if (p == 0) {
        EXPECT_LE(all, (kWithRoot + reports) * kProcesses + tree + memory) << "with the root";
      } else {
        EXPECT_LE(all, kWithRoot + reports + tree + memory) << "process " << p;
        EXPECT_GE(all, kHandshake + 4) << "its way to the root alone";
        most = std::max(most, all);
      }
    }
    std::printf("messages of a process but the root's: at most %llu\n", static_cast<unsigned long long>(most));
    EXPECT_EQ(tables, static_cast<uint64_t>(kProcesses - 1)) << "every process gets the table once";
  }
}

}  // namespace
}  // namespace tutti::bootstrap::roots_test
