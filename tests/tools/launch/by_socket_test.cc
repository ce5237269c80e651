// The exchange over sockets: ranks as threads, strangers in between.
#include "launch/by_socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "launch/address.h"
#include "launch/seal.h"
#include "tools/launch/ids.h"

namespace tutti::launch::by_socket_test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{30000};

struct BySocket : testing::TestWithParam<bool> {
  void SetUp() override { ASSERT_TRUE(startSeals().ok()); }

  /// Of a job of its own for each test; over TCP when the parameter says so.
  Standing standing(int rank, int ranks, const std::string& job = "") const {
    Standing made = standingOf(Launcher::Torchrun, rank, ranks);
    made.jobKey = format("{} {} {}", testing::UnitTest::GetInstance()->current_test_info()->name(), getpid(), job);
    if (GetParam()) {
      made.hosts = {"127.0.0.1"};
      made.localRanks = 1;
    }
    return made;
  }
  static Result<ncclUniqueId> exchange(const Standing& standing, milliseconds timeout = kLong, const std::string& secret = "") {
    return exchangeBySocket(standing, secret, standing.rank == 0 ? makerOf(9) : makeNone, Deadline::after(timeout));
  }
  uint64_t hashOf(const Standing& standing, const std::string& secret = "") const { return publicHash(keyOf(standing.jobKey, secret)); }

  /// Connections to whoever listens for the job, as a stranger opens them.
  std::vector<Descriptor> callAsStranger(const Standing& standing, int count) const {
    std::vector<Descriptor> calls;
    for (int tries = 0; static_cast<int>(calls.size()) < count && tries < 2000; ++tries) {
      std::string problem;
      std::vector<Address> addresses = {unixAddress(hashOf(standing), 0)};
      if (GetParam()) addresses = resolve({"127.0.0.1"}, portsOf(hashOf(standing)), problem);
      Descriptor socket(::socket(addresses[0].family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&addresses[0].storage), addresses[0].size) == 0) {
        calls.push_back(std::move(socket));
      } else {
        std::this_thread::sleep_for(milliseconds(5));
      }
    }
    EXPECT_EQ(static_cast<int>(calls.size()), count);
    return calls;
  }
};

TEST_P(BySocket, AllRanksGetTheId) {
  constexpr int kRanks = 24;
  std::vector<std::thread> ranks;
  for (int rank = kRanks - 1; rank >= 0; --rank) {
    ranks.emplace_back([this, rank] {
      const Result<ncclUniqueId> id = exchange(standing(rank, kRanks));
      EXPECT_TRUE(isId(id, 9)) << rank << (id ? "" : id.error().text());
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST_P(BySocket, OneAfterAnother) {
  for (int round = 0; round < 20; ++round) {
    std::thread other([this] { EXPECT_TRUE(isId(exchange(standing(1, 2)), 9)); });
    EXPECT_TRUE(isId(exchange(standing(0, 2)), 9));
    other.join();
  }
}

TEST_P(BySocket, StrangersDisturbNobody) {
  std::thread root([this] { EXPECT_TRUE(isId(exchange(standing(0, 3)), 9)); });
  std::minstd_rand random(17);
  // As many as rank 0 talks to at a time: some silent, some that talk nonsense, some that begin well.
  const std::vector<Descriptor> strangers = callAsStranger(standing(0, 3), 60);
  for (size_t i = 0; i < strangers.size(); ++i) {
    std::vector<unsigned char> bytes(random() % 200);
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
    if (i % 3 == 1 && bytes.size() > 8) std::memcpy(bytes.data(), "tuttiid1", 8);
    if (i % 3 != 0) (void)send(strangers[i].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  std::thread other([this] { EXPECT_TRUE(isId(exchange(standing(1, 3)), 9)); });
  EXPECT_TRUE(isId(exchange(standing(2, 3)), 9));
  other.join();
  root.join();
}

TEST_P(BySocket, AnAddressThatIsTakenIsPassedOver) {
  // A stranger that accepts and says nothing sits on the first address, and one that talks nonsense on the second.
  const uint64_t hash = hashOf(standing(0, 2));
  Address first;
  Address second;
  Result<Descriptor> silent = listenFor(hash, !GetParam(), first);
  ASSERT_TRUE(silent);
  Result<Descriptor> loud = listenFor(hash, !GetParam(), second);
  ASSERT_TRUE(loud);
  ASSERT_NE(first.text(), second.text());
  std::thread talker([&] {
    for (int i = 0; i < 400; ++i) {
      const Descriptor guest(accept4(loud->get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (guest) (void)send(guest.get(), std::string(300, 'x').data(), 300, MSG_NOSIGNAL);
      std::this_thread::sleep_for(milliseconds(10));
    }
  });
  std::thread other([this] { EXPECT_TRUE(isId(exchange(standing(1, 2)), 9)); });
  EXPECT_TRUE(isId(exchange(standing(0, 2)), 9));
  other.join();
  talker.join();
}

TEST_P(BySocket, AnotherJobOrSecretFindsNobody) {
  std::thread root([this] {
    const Result<ncclUniqueId> id = exchange(standing(0, 2), milliseconds(1500), "secret");
    ASSERT_FALSE(id);
    EXPECT_NE(id.error().text().find("ranks 1 of 2 have not come"), std::string::npos) << id.error().text();
  });
  const Result<ncclUniqueId> id = exchange(standing(1, 2), milliseconds(600), "another");
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code(), Code::RemoteError);
  EXPECT_NE(id.error().text().find("TUTTI_JOB_SECRET"), std::string::npos) << id.error().text();
  EXPECT_FALSE(exchange(standing(1, 2, "another job"), milliseconds(300)));
  root.join();
}

TEST_P(BySocket, RankCountsThatDisagreeAreToldOnBothSides) {
  std::thread root([this] {
    const Result<ncclUniqueId> id = exchange(standing(0, 2));
    ASSERT_FALSE(id);
    EXPECT_NE(id.error().text().find("rank 1 of 3"), std::string::npos) << id.error().text();
  });
  const Result<ncclUniqueId> id = exchange(standing(1, 3));
  ASSERT_FALSE(id);
  EXPECT_NE(id.error().text().find("2 ranks"), std::string::npos) << id.error().text();
  root.join();
}

TEST_P(BySocket, ASecondProcessOfARankIsNotServed) {
  std::thread root([this] { EXPECT_TRUE(isId(exchange(standing(0, 3)), 9)); });
  EXPECT_TRUE(isId(exchange(standing(1, 3)), 9));
  EXPECT_FALSE(exchange(standing(1, 3), milliseconds(300)));
  EXPECT_TRUE(isId(exchange(standing(2, 3)), 9));
  root.join();
}

INSTANTIATE_TEST_SUITE_P(Kinds, BySocket, testing::Bool(), [](const auto& kind) { return kind.param ? "Tcp" : "Unix"; });

TEST(Exchange, NothingTravelsForOneRankOrAFixedId) {
  EXPECT_TRUE(isId(exchangeId(Standing(), {}, makerOf(5), milliseconds(1)), 5));
  const Standing other = standingOf(Launcher::Torchrun, 1, 2);
  EXPECT_TRUE(isId(exchangeId(other, {{"NCCL_COMM_ID", "h:1"}}, makerOf(6), milliseconds(1)), 6));
}

TEST(Exchange, AnUnknownHostOfRankZeroIsToldWithTheWayOut) {
  Standing standing = standingOf(Launcher::OpenMpi, 1, 4);
  standing.localRanks = 2;
  standing.hostProblem = "nobody knows";
  const Result<ncclUniqueId> id = exchangeId(standing, {}, makeNone, milliseconds(1));
  ASSERT_FALSE(id);
  EXPECT_NE(id.error().text().find("nobody knows"), std::string::npos);
  EXPECT_NE(id.error().text().find("NCCL_COMM_ID"), std::string::npos);
  EXPECT_FALSE(exchangeId(standingOf(Launcher::Pmi, 1, 2), {}, makeNone, milliseconds(1)));
}

TEST(Addresses, PortsDifferAndStayInTheirRange) {
  std::minstd_rand random(3);
  for (int i = 0; i < 10000; ++i) {
    const auto ports = portsOf((uint64_t{random()} << 32) | random());
    const std::set<uint16_t> distinct(ports.begin(), ports.end());
    EXPECT_EQ(distinct.size(), ports.size());
    EXPECT_GE(*distinct.begin(), kFirstPort);
    EXPECT_LT(*distinct.rbegin(), kFirstPort + kPorts);
  }
}

TEST(Addresses, NamesResolveAndUnknownOnesAreTold) {
  std::string problem;
  const auto addresses = resolve({"no.such.host.invalid", "127.0.0.1", "::1"}, portsOf(1), problem);
  EXPECT_EQ(addresses.size(), 2U * kTries);
  EXPECT_NE(problem.find("no.such.host.invalid"), std::string::npos);
  EXPECT_EQ(addresses.front().text(), format("127.0.0.1:{}", portsOf(1)[0]));
  EXPECT_EQ(addresses.back().text(), format("[::1]:{}", portsOf(1)[kTries - 1]));
}

}  // namespace
}  // namespace tutti::launch::by_socket_test
