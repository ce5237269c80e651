// The PMI-1 conversation against a launcher of our own, which answers as MPICH's does, or worse.
#include "launch/by_pmi.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "tools/launch/ids.h"

namespace tutti::launch::by_pmi_test {
namespace {

using std::chrono::milliseconds;

/// The launcher's side of one rank: gets each line, and what it returns is sent back; nothing when it is empty.
class FakeLauncher {
 public:
  using Reply = std::function<std::string(const std::string&)>;

  explicit FakeLauncher(Reply reply) : reply_(std::move(reply)) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    mine_.reset(ends[0]);
    theirs_.reset(ends[1]);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeLauncher() {
    theirs_.reset();
    thread_.join();
  }
  Result<ncclUniqueId> exchange(int rank, const MakeId& makeId, milliseconds timeout = milliseconds(20000)) {
    Standing standing = standingOf(Launcher::Pmi, rank, 2);
    standing.descriptor = theirs_.get();
    return exchangeByPmi(standing, makeId, Deadline::after(timeout));
  }

 private:
  void serve() {
    std::string line;
    char byte = 0;
    while (recv(mine_.get(), &byte, 1, 0) == 1) {
      if (byte != '\n') {
        line += byte;
        continue;
      }
      const std::string answer = reply_(line);
      if (answer == "hang up") return mine_.reset();
      // In pieces: lines need not come as they were sent.
      for (const char c : answer) (void)send(mine_.get(), &c, 1, MSG_NOSIGNAL);
      line.clear();
    }
  }
  Reply reply_;
  Descriptor mine_;
  Descriptor theirs_;
  std::thread thread_;
};

std::string answerTo(const std::string& line, std::string& stored) {
  const std::string_view command = pmiValue(line, "cmd");
  if (command == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
  if (command == "get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_1\n";
  if (command == "put") {
    stored = pmiValue(line, "value");
    return "cmd=put_result rc=0 msg=success\n";
  }
  if (command == "barrier_in") return "cmd=barrier_out\n";
  if (command == "get") return "cmd=get_result rc=0 msg=success value=" + stored + "\n";
  return command == "finalize" ? "cmd=finalize_ack\n" : "cmd=what\n";
}

TEST(ByPmi, RankZeroPutsAndOthersGet) {
  std::string stored;
  const auto reply = [&](const std::string& line) { return answerTo(line, stored); };
  {
    FakeLauncher launcher(reply);
    EXPECT_TRUE(isId(launcher.exchange(0, makerOf(3)), 3));
  }
  EXPECT_EQ(stored.size(), 256U);
  FakeLauncher launcher(reply);
  EXPECT_TRUE(isId(launcher.exchange(1, makeNone), 3));
}

TEST(ByPmi, HexGoesBothWays) {
  for (int number = 0; number < 256; ++number) EXPECT_TRUE(isId(fromHex(toHex(idOf(number))), number));
  const std::string good = toHex(idOf(1));
  EXPECT_FALSE(fromHex(""));
  EXPECT_FALSE(fromHex(good.substr(1)));
  EXPECT_FALSE(fromHex(good + "00"));
  for (const char* bad : {"g0", "-1", " 1", "0x"}) EXPECT_FALSE(fromHex(good.substr(2) + bad)) << bad;
}

TEST(ByPmi, Values) {
  EXPECT_EQ(pmiValue("cmd=a rc=0 value=x=y", "value"), "x=y");
  EXPECT_EQ(pmiValue("cmd=a xrc=1", "rc"), "");
  EXPECT_EQ(pmiValue("", "rc"), "");
  EXPECT_EQ(pmiValue("rc=", "rc"), "");
}

TEST(ByPmi, AnythingElseFromTheLauncherIsAnErrorThatQuotesIt) {
  for (const std::string at : {"init", "get_my_kvsname", "barrier_in", "get", "finalize"}) {
    for (const std::string answer : {"hang up", "cmd=nonsense rc=0\n", "\n", "cmd=response_to_init rc=-1\n"}) {
      std::string stored = toHex(idOf(1));
      FakeLauncher launcher([&](const std::string& line) { return pmiValue(line, "cmd") == at ? answer : answerTo(line, stored); });
      const Result<ncclUniqueId> id = launcher.exchange(1, makeNone);
      ASSERT_FALSE(id) << at << " " << answer;
      EXPECT_NE(id.error().text().find(at), std::string::npos) << id.error().text();
    }
  }
}

TEST(ByPmi, ALauncherThatHasClosedIsToldFromOneThatAnswersBadly) {
  // The launcher may close before the line is written or before the answer comes; the hint is the same.
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor mine(ends[0]);
  Descriptor(ends[1]).reset();
  Standing standing = standingOf(Launcher::Pmi, 1, 2);
  standing.descriptor = mine.get();
  const Result<ncclUniqueId> unwritten = exchangeByPmi(standing, makeNone, Deadline::after(milliseconds(20000)));
  FakeLauncher launcher([](const std::string&) { return "hang up"; });
  const Result<ncclUniqueId> unanswered = launcher.exchange(1, makeNone);
  for (const Result<ncclUniqueId>* id : {&unwritten, &unanswered}) {
    ASSERT_FALSE(*id);
    EXPECT_NE(id->error().text().find("NCCL_COMM_ID"), std::string::npos) << id->error().text();
    EXPECT_NE(id->error().text().find("cmd=init"), std::string::npos) << id->error().text();
  }
}

TEST(ByPmi, AnIdThatIsNoneIsRefused) {
  std::string stored = "abc";
  FakeLauncher launcher([&](const std::string& line) { return answerTo(line, stored); });
  EXPECT_FALSE(launcher.exchange(1, makeNone));
}

TEST(ByPmi, AnEndlessLineIsRefused) {
  FakeLauncher launcher([](const std::string&) { return std::string(20000, 'x'); });
  EXPECT_FALSE(launcher.exchange(1, makeNone));
}

TEST(ByPmi, ASilentLauncherMeetsTheDeadline) {
  FakeLauncher launcher([](const std::string&) { return std::string(); });
  const Result<ncclUniqueId> id = launcher.exchange(1, makeNone, milliseconds(50));
  ASSERT_FALSE(id);
  EXPECT_NE(id.error().text().find("in time"), std::string::npos);
}

}  // namespace
}  // namespace tutti::launch::by_pmi_test
