#include "comm/spread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::comm::spread_test {
namespace {

using bootstrap::Roster;

constexpr uint64_t kTopic = 5;

/// Hosts of some processes each, joined by a mesh in which a test decides who is dead and who is known to be.
class Town {
 public:
  explicit Town(int32_t hosts, int32_t processesOfHost = 1) : hosts_(hosts), of_(processesOfHost) {
    const int32_t processes = hosts * processesOfHost;
    counts_.resize(static_cast<size_t>(processes));
    for (int32_t p = 0; p < processes; ++p) {
      auto& player = players_.emplace_back(std::make_unique<Player>());
      player->roster.ranks = processes;
      for (int32_t q = 0; q < processes; ++q)
        player->roster.processes.push_back({.token = 1, .pid = q, .host = q / of_, .ranks = {q}, .addresses = {}});
      player->roster.hosts.resize(static_cast<size_t>(hosts));
      for (int32_t q = 0; q < processes; ++q) player->roster.hosts[static_cast<size_t>(q / of_)].processes.push_back(q);
      player->roster.ownProcess = p;
      player->roster.ownHost = p / of_;
      player->roster.mesh = std::make_shared<TownMesh>(*this, p);
      player->spread = std::make_shared<Spread>(player->roster, std::vector<std::byte>(3), clock_);
    }
  }

  void say(int32_t process, const std::string& text, Spread::Way way = Spread::Way::Along) {
    const Roster& roster = at(process).roster;
    const Circle circle = members.empty() ? Circle::ofAll(roster) : Circle::of(roster, members);
    at(process).spread->say(kTopic, circle, std::as_bytes(std::span(text)), way);
  }
  /// Until nothing is under way any more: a pace passes whenever there is nothing else.
  void run() {
    while (!letters_.empty() || !later_.empty()) {
      for (const Letter& letter : std::exchange(letters_, {})) {
        if (dead.count(letter.to) != 0) continue;
        at(letter.to).spread->hear(letter.from, std::span(letter.message).subspan(3), at(letter.to));
      }
      if (!letters_.empty()) continue;
      clock_.advance(std::chrono::milliseconds(100));
      for (const auto& [process, call] : std::exchange(later_, {}))
        if (dead.count(process) == 0) call();
      ++paces;
    }
  }

  struct Heard {
    int32_t origin;
    std::string text;
    friend auto operator<=>(const Heard&, const Heard&) = default;
  };
  struct Count {
    uint64_t sent = 0;
    std::set<int32_t> peers;
  };
  std::vector<Heard>& heardBy(int32_t process) { return at(process).heard; }
  const Count& countOf(int32_t process) const { return counts_[static_cast<size_t>(process)]; }
  /// Over all processes of a host.
  bool hasHeard(int32_t host, const Heard& what) {
    for (int32_t p = host * of_; p < (host + 1) * of_; ++p)
      if (std::ranges::find(heardBy(p), what) != heardBy(p).end()) return true;
    return false;
  }
  Spread& spreadOf(int32_t process) { return *at(process).spread; }
  int32_t hosts() const { return hosts_; }

  std::set<int32_t> dead;     // processes that take nothing
  std::set<int32_t> known;    // those of them that everybody knows about
  std::set<int32_t> gone;     // processes that leave what comes to others of their host
  std::set<int32_t> content;  // processes that pass nothing on
  std::vector<int32_t> members;  // empty: all
  int paces = 0;

 private:
  struct Letter {
    int32_t from;
    int32_t to;
    std::vector<std::byte> message;
  };
  struct Player final : Spread::Audience {
    Roster roster;
    std::shared_ptr<Spread> spread;
    std::vector<Heard> heard;
    Town* town = nullptr;
    bool isWorthPassingOn(const Spread::Piece&) override { return town == nullptr || town->content.count(roster.ownProcess) == 0; }
    bool take(const Spread::Piece& piece) override {
      if (town != nullptr && town->gone.count(roster.ownProcess) != 0) return false;
      heard.push_back({piece.origin, std::string(reinterpret_cast<const char*>(piece.body.data()), piece.body.size())});
      return true;
    }
  };
  class TownMesh final : public bootstrap::Mesh {
   public:
    TownMesh(Town& town, int32_t self) : town_(town), self_(self) {}
    Status send(int32_t, std::span<const std::byte>) override { return error(Code::InternalError, "news are told"); }
    Status tell(int32_t process, std::span<const std::byte> message) override {
      for (const auto& [one, other] : {std::pair(self_, process), std::pair(process, self_)})
        town_.counts_[static_cast<size_t>(one)].peers.insert(other);
      ++town_.counts_[static_cast<size_t>(self_)].sent;
      town_.letters_.push_back({self_, process, {message.begin(), message.end()}});
      return {};
    }
    bool isReachable(int32_t process) const override { return town_.known.count(process) == 0; }
    void after(std::chrono::milliseconds, std::function<void()> call) override { town_.later_.emplace_back(self_, std::move(call)); }
    void setHandlers(OnMessage, OnLost) override {}
    std::shared_ptr<bootstrap::Exchange> allGather(std::span<const std::byte>, std::chrono::milliseconds) override { return nullptr; }
    std::shared_ptr<bootstrap::Exchange> barrier(std::chrono::milliseconds) override { return nullptr; }
    Counters counters() const override { return {}; }

   private:
    Town& town_;
    const int32_t self_;
  };
  Player& at(int32_t process) {
    Player& player = *players_[static_cast<size_t>(process)];
    player.town = this;
    return player;
  }

  const int32_t hosts_;
  const int32_t of_;
  ManualClock clock_{ManualClock::Sleep::MovesTime, std::chrono::seconds(1)};
  std::vector<std::unique_ptr<Player>> players_;
  std::vector<Count> counts_;
  std::vector<Letter> letters_;
  std::vector<std::pair<int32_t, std::function<void()>>> later_;
};

uint64_t logOf(int32_t hosts) { return static_cast<uint64_t>(std::bit_width(static_cast<uint32_t>(hosts - 1))); }

TEST(Spread, EveryHostHearsItOnceAndSendsNoMoreThanTheLogarithm) {
  for (const int32_t hosts : {2, 3, 4, 5, 8, 13, 64, 100, 512}) {
    Town town(hosts);
    const int32_t origin = hosts / 3;
    town.say(origin, "one");
    town.run();
    for (int32_t p = 0; p < hosts; ++p) {
      EXPECT_EQ(town.heardBy(p).size(), p == origin ? 0U : 1U) << p << " of " << hosts;
      EXPECT_LE(town.countOf(p).sent, logOf(hosts)) << p << " of " << hosts;
      EXPECT_LE(town.countOf(p).peers.size(), 2 * logOf(hosts)) << p << " of " << hosts;
    }
  }
}

/// As when a job ends: the messages of a host grow with the hops, and not with the hosts.
TEST(Spread, WhatAllHaveToSayAtOnceGoesTogether) {
  for (const int32_t hosts : {16, 128, 512}) {
    Town town(hosts);
    for (int32_t p = 0; p < hosts; ++p) town.say(p, "last", Spread::Way::Last);
    town.run();
    EXPECT_LE(town.paces, static_cast<int>(logOf(hosts)) + 1);
    for (int32_t p = 0; p < hosts; ++p) {
      ASSERT_EQ(town.heardBy(p).size(), static_cast<size_t>(hosts - 1)) << p << " of " << hosts;
      EXPECT_LE(town.countOf(p).sent, logOf(hosts) * (logOf(hosts) + 2)) << p << " of " << hosts;
      EXPECT_LE(town.countOf(p).peers.size(), 2 * logOf(hosts)) << p << " of " << hosts;
    }
  }
}

TEST(Spread, FewerThanTheLogarithmOfDeadHostsHideItFromNobody) {
  std::mt19937 random(3);
  for (const int32_t hosts : {4, 5, 6, 7, 8, 12, 31, 64, 100, 512}) {
    for (int round = 0; round < (hosts > 100 ? 3 : 20); ++round) {
      Town town(hosts);
      while (town.dead.size() + 1 < logOf(hosts)) town.dead.insert(1 + static_cast<int32_t>(random() % static_cast<uint32_t>(hosts - 1)));
      town.say(0, "word");
      town.run();
      for (int32_t p = 1; p < hosts; ++p)
        EXPECT_EQ(town.heardBy(p).size(), town.dead.count(p) != 0 ? 0U : 1U) << p << " of " << hosts << " in round " << round;
    }
  }
}

/// So many paths with no host in common lead from one host to another (Ford and Fulkerson, each host split in two).
int countPaths(const Circle& circle, int32_t from, int32_t to) {
  const auto n = static_cast<size_t>(circle.hosts());
  std::vector<std::set<size_t>> rest(2 * n);  // host h comes in at 2h and goes out at 2h + 1
  for (size_t h = 0; h < n; ++h) {
    rest[2 * h].insert(2 * h + 1);
    for (const int32_t next : circle.neighboursOf(static_cast<int32_t>(h))) rest[2 * h + 1].insert(2 * static_cast<size_t>(next));
  }
  const size_t begin = 2 * static_cast<size_t>(from) + 1, end = 2 * static_cast<size_t>(to);
  for (int paths = 0;; ++paths) {
    std::vector<size_t> before(2 * n, 2 * n), open = {begin};
    before[begin] = begin;
    for (size_t i = 0; i < open.size() && before[end] == 2 * n; ++i)
      for (const size_t next : rest[open[i]])
        if (before[next] == 2 * n) before[next] = open[i], open.push_back(next);
    if (before[end] == 2 * n) return paths;
    for (size_t at = end; at != begin; at = before[at]) {
      rest[before[at]].erase(at);
      rest[at].insert(before[at]);
    }
  }
}

/// circle.h, rule 2. The circle looks the same from every host, so that it is enough to begin at one.
TEST(Spread, AsManyPathsAsNeighboursLeadToEveryHost) {
  for (int32_t hosts = 2; hosts <= 150; hosts += hosts < 40 ? 1 : 11) {
    const Roster& roster = [&]() -> const Roster& {
      static Roster all;
      all.hosts.resize(static_cast<size_t>(hosts));
      all.processes.clear();
      for (int32_t h = 0; h < hosts; ++h) all.processes.push_back({.token = 1, .pid = h, .host = h, .ranks = {h}, .addresses = {}});
      return all;
    }();
    const Circle circle = Circle::ofAll(roster);
    const std::vector<int32_t> direct = circle.neighboursOf(0);
    EXPECT_EQ(direct.size(), logOf(hosts));
    for (int32_t h = 1; h < hosts; ++h) {
      if (std::ranges::find(direct, h) != direct.end()) continue;
      EXPECT_EQ(countPaths(circle, 0, h), static_cast<int>(direct.size())) << h << " of " << hosts;
    }
  }
}

TEST(Spread, AnyNumberOfHostsMayBeGoneThatAreKnownToBe) {
  std::mt19937 random(9);
  for (const int32_t hosts : {8, 64, 200}) {
    for (int round = 0; round < 10; ++round) {
      Town town(hosts);
      for (int32_t p = 1; p < hosts - 1; ++p)
        if (random() % 10 != 0) town.dead.insert(p);
      town.known = town.dead;
      town.say(0, "word");
      town.run();
      for (int32_t p = 1; p < hosts; ++p) EXPECT_EQ(town.heardBy(p).size(), town.dead.count(p) != 0 ? 0U : 1U) << p << " of " << hosts;
      for (int32_t p = 0; p < hosts; ++p) EXPECT_LE(town.countOf(p).sent, logOf(hosts));
    }
  }
}

TEST(Spread, WhatIsSaidLastIsToldToThoseBeforeAsWell) {
  Town town(64);
  town.dead = {5, 6, 8, 12, 20, 36};  // all to whom host 4 speaks; nobody knows it
  town.say(4, "lost");
  town.run();
  EXPECT_FALSE(town.hasHeard(3, {4, "lost"}));
  town.say(4, "bye", Spread::Way::Last);
  town.run();
  for (int32_t h = 0; h < 64; ++h) EXPECT_EQ(town.hasHeard(h, {4, "bye"}), h != 4 && town.dead.count(h) == 0) << h;
}

TEST(Spread, WhatGoesDirectlyNeedsNobodyBetween) {
  Town town(32);
  for (int32_t h = 0; h < 32; ++h)
    if (h != 2 && h != 9) town.dead.insert(h);  // nobody knows it
  town.say(2, "along");
  town.run();
  EXPECT_FALSE(town.hasHeard(9, {2, "along"}));
  town.say(2, "direct", Spread::Way::Direct);
  town.run();
  EXPECT_TRUE(town.hasHeard(9, {2, "direct"}));
}

TEST(Spread, PiecesOfOneOriginStayInOrder) {
  std::mt19937 random(2);
  Town town(40);
  std::vector<std::string> said;
  for (int i = 0; i < 200; ++i) {
    said.push_back(std::to_string(i));
    town.say(7, said.back());
    if (random() % 4 == 0) town.run();
  }
  town.run();
  for (int32_t p = 0; p < 40; ++p) {
    if (p == 7) continue;
    std::vector<std::string> heard;
    for (const auto& one : town.heardBy(p)) heard.push_back(one.text);
    EXPECT_EQ(heard, said) << p;
  }
}

TEST(Spread, OnlyThoseWhoTakePartHearOfIt) {
  Town town(30, 2);
  for (int32_t p = 0; p < 60; ++p)
    if (p % 7 == 3 || p % 7 == 4) town.members.push_back(p);
  town.say(town.members[2], "ours");
  town.run();
  std::set<int32_t> hosts;
  for (const int32_t p : town.members) hosts.insert(p / 2);
  for (int32_t h = 0; h < 30; ++h)
    EXPECT_EQ(town.hasHeard(h, {town.members[2], "ours"}), hosts.count(h) != 0 && h != town.members[2] / 2) << h;
  for (int32_t p = 0; p < 60; ++p) {
    const bool takesPart = std::ranges::find(town.members, p) != town.members.end();
    EXPECT_TRUE(takesPart || town.countOf(p).peers.empty()) << p;
  }
}

TEST(Spread, OneProcessOfEachHostHearsItAndTheNextWhereThatHasLeft) {
  Town town(20, 3);
  town.known = town.dead = {3 * 4, 3 * 9, 3 * 9 + 1};
  town.gone = {3 * 6, 3 * 7, 3 * 7 + 1};
  town.say(1, "word");
  town.run();
  for (int32_t h = 0; h < 20; ++h) {
    int heard = 0;
    for (int32_t p = 3 * h; p < 3 * h + 3; ++p) heard += static_cast<int>(town.heardBy(p).size());
    EXPECT_EQ(heard, h == 0 ? 0 : 1) << h << ": it comes round to the host of its origin, where the others know it";
  }
  EXPECT_EQ(town.heardBy(3 * 7 + 2).size(), 1U);
  EXPECT_EQ(town.heardBy(3 * 9 + 2).size(), 1U);
}

TEST(Spread, WhoKnowsThatOthersKnowPassesNothingOn) {
  Town town(64);
  for (int32_t p = 0; p < 64; ++p) town.content.insert(p);
  town.say(0, "old");
  town.run();
  for (int32_t p = 1; p < 64; ++p) EXPECT_EQ(town.countOf(p).sent, 0U) << p;
}

/// It is still passed on by those for whom it is over, and forgotten after many others: nothing grows without end.
TEST(Spread, WhatIsOverIsPassedOnForAWhile) {
  Town town(8);
  for (int32_t p = 1; p < 8; ++p) town.spreadOf(p).end(kTopic);
  town.say(0, "late");
  town.run();
  for (int32_t p = 1; p < 8; ++p) EXPECT_TRUE(town.hasHeard(p, {0, "late"})) << p;
  for (int32_t p = 1; p < 8; ++p)
    for (uint64_t topic = 100; topic < 100 + Spread::kMostOver; ++topic) town.spreadOf(p).end(topic);
  town.say(0, "too late");
  town.run();
  for (int32_t p = 1; p < 8; ++p) EXPECT_FALSE(town.hasHeard(p, {0, "too late"})) << p;
}

TEST(Circle, ComesBackFromAMessage) {
  std::mt19937 random(4);
  Roster all;
  for (int32_t p = 0; p < 70; ++p) all.processes.push_back({.token = 1, .pid = p, .host = (p * 7) % 20, .ranks = {p}, .addresses = {}});
  all.hosts.resize(20);
  all.ownProcess = 33;
  all.ownHost = all.process(33).host;
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> some = {33};
    for (auto i = random() % 80; i > 0; --i) some.push_back(static_cast<int32_t>(random() % 70));
    const Circle circle = Circle::of(all, some);
    const auto again = Circle::decode(all, circle.encode(all));
    ASSERT_TRUE(again);
    ASSERT_EQ(again->hosts(), circle.hosts());
    EXPECT_EQ(again->place(), circle.place());
    for (int32_t place = 0; place < circle.hosts(); ++place)
      EXPECT_TRUE(std::ranges::equal(again->processesAt(place), circle.processesAt(place)));
  }
  const Circle own = Circle::of(all, std::vector<int32_t>{33});
  all.ownProcess = 34;
  EXPECT_FALSE(Circle::decode(all, own.encode(all))) << "without the own process";
}

}  // namespace
}  // namespace tutti::comm::spread_test
