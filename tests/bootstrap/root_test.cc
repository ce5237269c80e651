// A root alone, with parties that the test plays: when it says Go.
#include "bootstrap/root.h"

#include <mutex>

#include "bootstrap/core.h"
#include "play.h"

namespace tutti::bootstrap::root_test {
namespace {

using namespace play;

constexpr int32_t kParties = 3;

struct Heard : PartyPort {
  int welcomes = 0;
  int tables = 0;
  int goes = 0;
  std::vector<std::string> troubles;
  void onWelcome(const Welcome&) override { ++welcomes; }
  void onTable(const Table&) override { ++tables; }
  void onGo() override { ++goes; }
  void onTrouble(const Status& cause) override { troubles.push_back(cause.text()); }
  void onMissing(const std::string&) override {}
};

/// As many processes as parties; the reactor is held for the root's alarms.
struct Meeting {
  Meeting() {
    EXPECT_TRUE(prepareCrypto().ok());
    EXPECT_TRUE(core->reactor.hold().ok());
    for (int32_t p = 0; p < kParties; ++p) parties.push_back(std::make_shared<Heard>());
  }
  ~Meeting() { core->shutDown(); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  void enroll(int32_t p) {
    const std::lock_guard lock(core->mutex);
    const Member member{static_cast<uint64_t>(p) + 1, p, 7, "host", {}};
    const Status status = root->enroll(parties[static_cast<size_t>(p)], Enroll{{kParties, 1, 0}, {}, member, p, noteOf(p), 30'000});
    EXPECT_TRUE(status.ok()) << status.text();
  }
  void ready(int32_t p) {
    const std::lock_guard lock(core->mutex);
    root->ready(*parties[static_cast<size_t>(p)]);
  }
  int goes() const {
    int all = 0;
    for (const auto& party : parties) all += party->goes;
    return all;
  }

  std::shared_ptr<Core> core = std::make_shared<Core>(worldOf("h"), Status());
  std::shared_ptr<Root> root = std::make_shared<Root>(core, UniqueId{}, nullptr);
  std::vector<std::shared_ptr<Heard>> parties;
};

TEST(Root, SaysGoOnceWhenAllAreReadyHoweverOftenTheySaySo) {
  Meeting meeting;
  for (int32_t p = 0; p < kParties; ++p) meeting.enroll(p);
  EXPECT_EQ(meeting.parties[0]->tables, 1);
  for (int i = 0; i < 2 * kParties; ++i) meeting.ready(1);
  meeting.ready(0);
  EXPECT_EQ(meeting.goes(), 0) << "process 2 is not ready";
  meeting.ready(2);
  for (const auto& party : meeting.parties) EXPECT_EQ(party->goes, 1);
  meeting.ready(2);
  EXPECT_EQ(meeting.goes(), kParties) << "it is over";
}

TEST(Root, IsNotReadyForThoseWhoHaveNotCome) {
  Meeting meeting;
  for (int32_t p = 0; p < 2; ++p) {
    meeting.enroll(p);
    meeting.ready(p);
  }
  EXPECT_EQ(meeting.goes(), 0);
  meeting.enroll(2);
  for (int32_t p = 0; p < 2; ++p) meeting.ready(p);
  EXPECT_EQ(meeting.goes(), 0) << "process 2 is not ready";
  meeting.ready(2);
  EXPECT_EQ(meeting.goes(), kParties);
}

TEST(Root, APartyThatLeavesEndsItForAllAndNobodyGoes) {
  for (const bool wasReady : {false, true}) {
    Meeting meeting;
    for (int32_t p = 0; p < kParties; ++p) meeting.enroll(p);
    if (wasReady) meeting.ready(1);
    {
      const std::lock_guard lock(meeting.core->mutex);
      meeting.root->lose(*meeting.parties[1], error(Code::RemoteError, "is gone"));
    }
    for (int32_t p = 0; p < kParties; ++p) meeting.ready(p);
    EXPECT_EQ(meeting.goes(), 0);
    for (const int32_t p : {0, 2}) {
      ASSERT_EQ(meeting.parties[static_cast<size_t>(p)]->troubles.size(), 1U);
      EXPECT_NE(meeting.parties[static_cast<size_t>(p)]->troubles[0].find("rank 1"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tutti::bootstrap::root_test
