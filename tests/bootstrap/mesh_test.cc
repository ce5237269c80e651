#include "bootstrap/mesh.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <filesystem>
#include <future>
#include <mutex>
#include <random>

#include "play.h"

namespace tutti::bootstrap::mesh_test {
namespace {

using namespace play;

std::vector<std::byte> bytesOf(const std::string& text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

/// One process of a communicator, as the tests see it.
struct Player {
  Player() = default;
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;
  std::unique_ptr<Service> service;
  Joined joined;
  std::shared_ptr<const Roster> roster;
  std::mutex mutex;
  std::vector<std::pair<int32_t, std::string>> messages;  // under mutex
  std::vector<std::pair<int32_t, std::string>> losses;    // under mutex

  ~Player() { leave(); }

  Mesh& mesh() const { return *roster->mesh; }
  size_t messageCount() {
    const std::lock_guard lock(mutex);
    return messages.size();
  }
  size_t lossCount() {
    const std::lock_guard lock(mutex);
    return losses.size();
  }
  void listen() {
    mesh().setHandlers(
        [this](int32_t from, std::span<const std::byte> bytes) {
          const std::lock_guard lock(mutex);
          messages.emplace_back(from, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
        },
        [this](int32_t who, const Status& cause) {
          const std::lock_guard lock(mutex);
          losses.emplace_back(who, cause.text());
        });
  }
  /// Goes without a word to anybody, as a process that is killed.
  void leave() {
    joined.reset();
    roster.reset();
    service.reset();
  }
};

using Players = std::vector<std::unique_ptr<Player>>;

Players gather(int32_t processes, int32_t hosts) {
  Players players;
  for (int32_t p = 0; p < processes; ++p) {
    players.push_back(std::make_unique<Player>());
    players.back()->service = std::make_unique<Service>(worldOf("host" + std::to_string(p % hosts)));
  }
  const auto id = players[0]->service->makeId();
  EXPECT_TRUE(id);
  for (int32_t p = 0; p < processes; ++p)
    players[static_cast<size_t>(p)]->joined = join(*players[static_cast<size_t>(p)]->service, *id, processes, p);
  for (const auto& player : players) {
    auto outcome = wait(*player->joined);
    EXPECT_TRUE(outcome) << outcome.error().text();
    if (outcome) player->roster = *outcome;
  }
  return players;
}

Result<std::shared_ptr<const Gathered>> wait(const Exchange& exchange) {
  std::optional<Result<std::shared_ptr<const Gathered>>> result;
  EXPECT_TRUE(becomes([&] { return (result = exchange.poll()).has_value(); }));
  return result ? *result : fail(Code::InProgress, "the test waited in vain");
}

TEST(Mesh, MessagesArriveWholeAndInOrder) {
  const Players players = gather(4, 2);
  constexpr int kEach = 200;
  std::mt19937 random(7);
  for (const auto& player : players) player->listen();
  std::vector<std::vector<std::string>> expected(4);  // of each sender to process 3
  for (int i = 0; i < kEach; ++i) {
    for (size_t from = 0; from < 3; ++from) {
      expected[from].push_back(std::to_string(i) + std::string(random() % (i % 50 == 0 ? 300'000 : 300), static_cast<char>('a' + from)));
      ASSERT_TRUE(players[from]->mesh().send(3, bytesOf(expected[from].back())).ok());
      ASSERT_TRUE(players[3]->mesh().send(static_cast<int32_t>(from), bytesOf(expected[from].back())).ok());  // both open at once
    }
  }
  ASSERT_TRUE(becomes([&] { return players[3]->messageCount() == 3 * kEach; }));
  for (int32_t from = 0; from < 3; ++from) {
    std::vector<std::string> got;
    for (const auto& [who, text] : players[3]->messages) {
      if (who == from) got.push_back(text);
    }
    EXPECT_EQ(got, expected[static_cast<size_t>(from)]);
    Player& other = *players[static_cast<size_t>(from)];
    ASSERT_TRUE(becomes([&] { return other.messageCount() == kEach; }));
    for (int i = 0; i < kEach; ++i)
      EXPECT_EQ(other.messages[static_cast<size_t>(i)].second, expected[static_cast<size_t>(from)][static_cast<size_t>(i)]);
  }
}

TEST(Mesh, WhatComesBeforeThereIsAHandlerWaits) {
  const Players players = gather(2, 1);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(players[0]->mesh().send(1, bytesOf(std::to_string(i))).ok());
  const auto barrier = players[0]->mesh().barrier(milliseconds(5000));
  ASSERT_TRUE(wait(*players[1]->mesh().barrier(milliseconds(5000)))) << "messages before it have arrived";
  ASSERT_TRUE(wait(*barrier));
  EXPECT_EQ(players[1]->messageCount(), 0U);
  players[1]->listen();
  ASSERT_TRUE(becomes([&] { return players[1]->messageCount() == 10; }));
  EXPECT_EQ(players[1]->messages[9].second, "9");
}

TEST(Mesh, SendRefusesWhatCannotArrive) {
  const Players players = gather(2, 2);
  Mesh& mesh = players[0]->mesh();
  EXPECT_EQ(mesh.send(0, {}).code(), Code::InvalidArgument);
  EXPECT_EQ(mesh.send(2, {}).code(), Code::InvalidArgument);
  EXPECT_EQ(mesh.send(-1, {}).code(), Code::InvalidArgument);
  EXPECT_EQ(mesh.send(1, std::vector<std::byte>(Mesh::kMostMessageBytes + 1)).code(), Code::InvalidArgument);
  EXPECT_TRUE(mesh.send(1, std::vector<std::byte>(Mesh::kMostMessageBytes)).ok());
  players[1]->listen();
  ASSERT_TRUE(becomes([&] { return players[1]->messageCount() == 1; }, milliseconds(60'000))) << "to seal so much takes sanitizers seconds";
  EXPECT_EQ(players[1]->messages[0].second.size(), Mesh::kMostMessageBytes);
}

TEST(Mesh, AllGatherGivesEverybodyEveryPart) {
  const Players players = gather(9, 3);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<Exchange>> exchanges;
    for (const auto& player : players)
      exchanges.push_back(
          player->mesh().allGather(bytesOf(std::to_string(player->roster->ownProcess * 100 + round)), milliseconds(10'000)));
    for (const auto& exchange : exchanges) {
      const auto result = wait(*exchange);
      ASSERT_TRUE(result) << result.error().text();
      for (size_t p = 0; p < players.size(); ++p) EXPECT_EQ((**result)[p], bytesOf(std::to_string(p * 100 + static_cast<size_t>(round))));
    }
  }
}

TEST(Mesh, ABarrierLastsUntilTheLastHasCome) {
  const Players players = gather(5, 2);
  std::vector<std::shared_ptr<Exchange>> exchanges;
  for (size_t p = 0; p < 4; ++p) exchanges.push_back(players[p]->mesh().barrier(milliseconds(10'000)));
  std::this_thread::sleep_for(milliseconds(50));
  for (const auto& exchange : exchanges) EXPECT_FALSE(exchange->poll());
  exchanges.push_back(players[4]->mesh().barrier(milliseconds(10'000)));
  for (const auto& exchange : exchanges) EXPECT_TRUE(wait(*exchange));
}

TEST(Mesh, ADeadlineNamesWhoDidNotCome) {
  const Players players = gather(7, 3);
  std::vector<std::shared_ptr<Exchange>> exchanges;
  for (size_t p = 0; p < 7; ++p) {
    if (p != 4) exchanges.push_back(players[p]->mesh().barrier(milliseconds(200)));
  }
  for (const auto& exchange : exchanges) {
    const auto result = wait(*exchange);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Code::RemoteError);
    EXPECT_NE(result.error().text().find("200 ms: rank 4 (process"), std::string::npos) << result.error().text();
  }
  const auto late = players[4]->mesh().barrier(milliseconds(200));  // it has failed for this process too
  const auto result = wait(*late);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().text().find("rank 4"), std::string::npos) << result.error().text();
}

TEST(Mesh, ALossIsHeardOfByEverybodyOnceAndEndsWhatWaits) {
  Players players = gather(8, 2);
  for (const auto& player : players) player->listen();
  std::vector<std::shared_ptr<Exchange>> exchanges;
  for (size_t p = 0; p < 8; ++p) {
    if (p != 5) exchanges.push_back(players[p]->mesh().barrier(milliseconds(60'000)));
  }
  players[5]->service.reset();  // its mesh says goodbye; then it is a peer that left while others wait for it
  for (const auto& exchange : exchanges) {
    const auto result = wait(*exchange);
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().text().find("rank 5"), std::string::npos) << result.error().text();
  }
}

TEST(Mesh, ARanksTroubleAfterTheJoinReachesTheOthers) {
  const Players players = gather(6, 2);
  for (const auto& player : players) player->listen();
  players[3]->joined->end(error(Code::SystemError, "no memory"));
  for (size_t p = 0; p < 6; ++p) {
    if (p == 3) continue;
    ASSERT_TRUE(becomes([&] { return players[p]->lossCount() == 1; })) << p;
    EXPECT_EQ(players[p]->losses[0].first, 3);
    EXPECT_NE(players[p]->losses[0].second.find("no memory"), std::string::npos);
    EXPECT_FALSE(players[p]->mesh().send(3, {}).ok());
    const auto result = wait(*players[p]->mesh().barrier(milliseconds(60'000)));
    ASSERT_FALSE(result) << "at once";
  }
}

TEST(Mesh, PeersThatLeaveInPeaceAreNoLoss) {
  Players players = gather(4, 2);
  for (const auto& player : players) player->listen();
  std::vector<std::shared_ptr<Exchange>> exchanges;
  for (const auto& player : players) exchanges.push_back(player->mesh().barrier(milliseconds(10'000)));
  for (const auto& exchange : exchanges) ASSERT_TRUE(wait(*exchange));
  for (size_t p = 1; p < 4; ++p) {
    ASSERT_TRUE(players[p]->mesh().send(0, bytesOf("last words")).ok());
    players[p]->joined.reset();
    players[p]->roster.reset();
  }
  EXPECT_TRUE(becomes([&] { return players[0]->messageCount() == 3; })) << "what was sent before the goodbye arrives";
  EXPECT_TRUE(becomes([&] { return !players[0]->mesh().send(1, {}).ok(); })) << "somebody who has left gets no message";
  EXPECT_EQ(players[0]->lossCount(), 0U);
}

/// Process 5 has left in peace, and process 2 has never spoken with it: what it tells it is lost, and nothing else.
TEST(Mesh, ThatSomebodyCannotBeToldIsNoLoss) {
  const Players players = gather(8, 8);
  for (const auto& player : players) player->listen();
  ASSERT_TRUE(players[2]->mesh().tell(6, bytesOf("news")).ok());
  EXPECT_TRUE(becomes([&] { return players[6]->messageCount() == 1; }));
  players[5]->leave();
  EXPECT_TRUE(becomes([&] { return !players[4]->mesh().isReachable(5); })) << "its parent in the tree hears its goodbye";
  EXPECT_TRUE(players[2]->mesh().isReachable(5));
  ASSERT_TRUE(players[2]->mesh().tell(5, bytesOf("news")).ok());
  EXPECT_TRUE(becomes([&] { return !players[2]->mesh().isReachable(5); }));
  EXPECT_FALSE(players[2]->mesh().tell(5, bytesOf("news")).ok());
  EXPECT_EQ(players[2]->lossCount(), 0U);
  ASSERT_TRUE(players[2]->mesh().send(5, bytesOf("needed")).ok());
  EXPECT_TRUE(becomes([&] { return players[2]->lossCount() == 1; })) << "who needs it is told that it is gone";
}

/// The connection is made while process 5 leaves in peace: at whatever moment that is, it is no loss.
TEST(Mesh, ThatSomebodyLeavesWhileItIsToldIsNoLoss) {
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const Players players = gather(8, 8);
    for (const auto& player : players) player->listen();
    ASSERT_TRUE(players[2]->mesh().tell(5, bytesOf("news")).ok());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
    players[5]->joined.reset();
    players[5]->roster.reset();
    EXPECT_TRUE(becomes([&] { return !players[2]->mesh().isReachable(5); }));
    EXPECT_EQ(players[2]->lossCount(), 0U) << players[2]->losses.front().second << ", try " << i;
  }
}

/// The same while each of the two calls the other.
TEST(Mesh, LastWordsArriveWhoeverCalls) {
  std::mt19937 random(1);
  for (int i = 0; i < 150; ++i) {
    const Players players = gather(8, 8);
    for (const auto& player : players) player->listen();
    const auto pause = std::chrono::microseconds(random() % 400);
    const auto speak = [&](bool isLeaver) {
      const Status status = isLeaver ? players[5]->mesh().send(2, bytesOf("last words")) : players[2]->mesh().tell(5, bytesOf("news"));
      ASSERT_TRUE(status.ok()) << status.text();
    };
    speak(i % 2 == 0);
    std::this_thread::sleep_for(pause);
    speak(i % 2 != 0);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 800));
    players[5]->joined.reset();
    players[5]->roster.reset();
    EXPECT_TRUE(becomes([&] { return players[2]->messageCount() == 1; })) << "try " << i;
    EXPECT_EQ(players[2]->lossCount(), 0U) << "try " << i;
  }
}

/// Its goodbye comes to process 2 directly, and may be there before the news of its trouble.
TEST(Mesh, TroubleOfWhoLeavesAtOnceIsHeard) {
  for (int i = 0; i < 20; ++i) {
    const Players players = gather(8, 8);
    for (const auto& player : players) player->listen();
    ASSERT_TRUE(players[2]->mesh().tell(5, bytesOf("news")).ok());
    EXPECT_TRUE(becomes([&] { return players[5]->messageCount() == 1; }));
    players[5]->joined->end(error(Code::SystemError, "no memory"));
    players[5]->joined.reset();
    players[5]->roster.reset();
    for (const auto& player : players)
      EXPECT_TRUE(player == players[5] || becomes([&] { return player->lossCount() == 1; })) << "try " << i;
  }
}

TEST(Mesh, WhatIsToBeCalledLaterIsCalledWhileTheMeshIsThere) {
  Players players = gather(2, 2);
  std::atomic<int> calls{0};
  const auto since = std::chrono::steady_clock::now();
  players[0]->mesh().after(milliseconds(20), [&] { ++calls; });
  EXPECT_TRUE(becomes([&] { return calls == 1; }));
  EXPECT_GE(std::chrono::steady_clock::now() - since, milliseconds(20));
  players[0]->mesh().after(milliseconds(50), [&] { ++calls; });
  players[0]->leave();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(calls, 1);
}

int countThreads() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) count += entry.exists() ? 1 : 0;
  return count;
}

/// Process 5 answers nobody; process 2 ends while it still tries to reach it, and does not stay for all tries.
TEST(Mesh, WhoEndsDoesNotTryForLongToReachWhoDoesNotAnswer) {
  const Players players = gather(8, 8);
  std::promise<void> isOver;
  std::atomic<bool> isStuck{false};
  players[5]->mesh().setHandlers(
      [&](int32_t, std::span<const std::byte>) {
        isStuck = true;
        isOver.get_future().wait();
      },
      nullptr);
  ASSERT_TRUE(players[4]->mesh().send(5, bytesOf("stay")).ok());
  ASSERT_TRUE(becomes([&] { return isStuck.load(); }));
  const int before = countThreads();
  ASSERT_TRUE(players[2]->mesh().tell(5, bytesOf("news")).ok());
  std::this_thread::sleep_for(milliseconds(50));
  players[2]->joined.reset();
  players[2]->roster.reset();
  const auto since = std::chrono::steady_clock::now();
  while (countThreads() == before && std::chrono::steady_clock::now() - since < std::chrono::seconds(12))
    std::this_thread::sleep_for(milliseconds(20));
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::seconds(6));
  isOver.set_value();
}

TEST(Mesh, ConnectionsAndMessagesGrowWithTheLogarithm) {
  for (const int32_t hosts : {1, 8, 64}) {
    const Players players = gather(64, hosts);
    const auto connections = [](const Player& player) {
      return player.mesh().counters().connectionsOpened + player.mesh().counters().connectionsAccepted;
    };
    std::vector<uint64_t> before;
    for (const auto& player : players) {
      EXPECT_LE(connections(*player), 8U) << "the tree";
      before.push_back(player->mesh().counters().messagesSent);
    }
    std::vector<std::shared_ptr<Exchange>> exchanges;
    for (const auto& player : players) exchanges.push_back(player->mesh().barrier(milliseconds(20'000)));
    for (const auto& exchange : exchanges) ASSERT_TRUE(wait(*exchange));
    for (size_t p = 0; p < players.size(); ++p) {
      EXPECT_LE(connections(*players[p]), 3U * std::bit_width(64U));
      // Its messages, and an introduction on each connection that it opened.
      EXPECT_LE(players[p]->mesh().counters().messagesSent - before[p], 3U * std::bit_width(64U));
    }
  }
}

}  // namespace
}  // namespace tutti::bootstrap::mesh_test
