#include "bootstrap/link.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../observe/capture_log.h"
#include "net.h"

namespace tutti::bootstrap::link_test {
namespace {

using namespace play;

std::vector<std::byte> bytesOf(const std::string& text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

/// What one end of a connection has heard.
struct Ear {
  std::mutex mutex;
  std::vector<std::string> frames;  // under mutex
  std::string closed;               // under mutex

  void attach(Loop& loop, const std::shared_ptr<Link>& link) {
    loop.run([&] {
      link->start(
          [this](Kind, std::span<const std::byte> payload) {
            const std::lock_guard lock(mutex);
            frames.emplace_back(reinterpret_cast<const char*>(payload.data()), payload.size());
          },
          [this](const Status& cause) {
            const std::lock_guard lock(mutex);
            closed = cause.text();
          });
    });
  }
  size_t count() {
    const std::lock_guard lock(mutex);
    return frames.size();
  }
  bool isClosed() {
    const std::lock_guard lock(mutex);
    return !closed.empty();
  }
};

struct Pair {
  Ear hears;  // outlive the loop
  Ear heard;
  Loop loop;
  Door door{loop};
  std::shared_ptr<Link> here = dial(loop, planTo({door.address})).value_or(nullptr);
  std::shared_ptr<Link> there;

  Pair() {
    EXPECT_TRUE(here);
    EXPECT_TRUE(becomes([&] { return door.guests() == 1; }));
    there = door.links[0];
    hears.attach(loop, here);
    heard.attach(loop, there);
  }
  ~Pair() {
    loop.run([this] { here->close(); });
    loop.run([] {});
  }
};

TEST(Link, FramesOfAllSizesArriveInOrderBothWays) {
  Pair pair;
  std::vector<std::string> sent;
  for (const size_t size : {0, 1, 100, 16'383, 16'384, 16'385, 5, 1'000'000, 0, 3'000'000, 7})
    sent.emplace_back(size, static_cast<char>('a' + sent.size()));
  for (const std::string& text : sent) {
    pair.here->send(Kind::Data, bytesOf(text));
    pair.there->send(Kind::Data, bytesOf(text));
  }
  ASSERT_TRUE(becomes([&] { return pair.heard.count() == sent.size() && pair.hears.count() == sent.size(); }));
  EXPECT_EQ(pair.heard.frames, sent);
  EXPECT_EQ(pair.hears.frames, sent);
  EXPECT_TRUE(becomes([&] { return pair.here->queuedBytes() == 0; }));
}

TEST(Link, FinishSendsWhatIsQueuedFirst) {
  Pair pair;
  for (int i = 0; i < 100; ++i) pair.here->send(Kind::Data, bytesOf(std::string(100'000, 'x')));
  pair.there->send(Kind::Data, bytesOf("crossing it"));  // unread bytes here must not cost those there
  pair.here->finish();
  ASSERT_TRUE(becomes([&] { return pair.heard.isClosed(); }));
  EXPECT_EQ(pair.heard.count(), 100U);
  EXPECT_FALSE(pair.hears.isClosed()) << "the side that ended it hears nothing more";
}

TEST(Link, CloseIsHeardByTheOtherSideOnly) {
  Pair pair;
  pair.there->close();
  ASSERT_TRUE(becomes([&] { return pair.hears.isClosed(); }));
  EXPECT_FALSE(pair.heard.isClosed());
  pair.here->send(Kind::Data, bytesOf("too late"));
  pair.loop.run([] {});
}

TEST(Link, ReadingMayPause) {
  Pair pair;
  pair.loop.run([&] { pair.there->setReading(false); });
  for (int i = 0; i < 50; ++i) pair.here->send(Kind::Data, bytesOf(std::to_string(i)));
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_LE(pair.heard.count(), 50U);
  const size_t before = pair.heard.count();
  EXPECT_EQ(before, 0U);
  pair.loop.run([&] { pair.there->setReading(true); });
  ASSERT_TRUE(becomes([&] { return pair.heard.count() == 50; }));
  EXPECT_EQ(pair.heard.frames[49], "49");
}

TEST(Link, BytesThatNobodySealedEndIt) {
  Ear ear;
  Loop loop;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const UniqueFd stranger(ends[1]);
  std::shared_ptr<Link> link;
  loop.run([&] {
    Socket socket(loop.reactor.loop());
    socket.assign(asio::generic::stream_protocol(AF_UNIX, 0), ends[0]);
    link = std::make_shared<Link>(loop.reactor, std::move(socket), SessionKeys{}, "the other");
  });
  ear.attach(loop, link);
  const std::vector<std::byte> noise(100, std::byte{0});
  std::vector<std::byte> frame = {std::byte{50}, std::byte{0}, std::byte{0}, std::byte{0}};
  frame.insert(frame.end(), noise.begin(), noise.end());
  ASSERT_EQ(send(stranger.get(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
  ASSERT_TRUE(becomes([&] { return ear.isClosed(); }));
  EXPECT_NE(ear.closed.find("did not seal"), std::string::npos) << ear.closed;
  EXPECT_EQ(ear.count(), 0U);
}

TEST(Dialer, TakesTheAddressThatWorks) {
  Loop loop;
  Door door(loop);
  Door six(loop, "::1");
  Address refuses = door.address;
  refuses.port = 1;
  EXPECT_TRUE(dial(loop, planTo({refuses, door.address})));
  EXPECT_TRUE(dial(loop, planTo({six.address, refuses})));
  EXPECT_TRUE(becomes([&] { return door.guests() == 1 && six.guests() == 1; }));
}

/// A port where nobody listens, one that is silent, one that answers, and one that is not needed.
TEST(Dialer, LogsWhichAddressItTookAndWhyNotTheOthers) {
  const observe::play::CaptureLog log("INFO");
  Loop loop;
  Door door(loop);
  const auto silent = listenAt(toSocketAddress(*parseAddress("127.0.0.1")), "who says nothing");
  ASSERT_TRUE(silent) << silent.error().text();
  Address refuses = door.address;
  refuses.port = 1;
  observe::AddressTable table(observe::Subsys::Init, "Test");
  Dialer::Plan plan = planTo({refuses, *listeningAddress(*silent), door.address, refuses});
  plan.table = &table;
  EXPECT_TRUE(dial(loop, plan));
  const std::string text = log.text();
  const auto expect = [&](const Address& address, const std::string& what) {
    const size_t line = text.find("Test: address  " + describe(address));
    ASSERT_NE(line, std::string::npos) << text;
    const std::string_view rest = std::string_view(text).substr(line, text.find('\n', line) - line);
    EXPECT_NE(rest.find("of the test's door  " + what), std::string_view::npos) << text;
  };
  expect(refuses, "not chosen: does not accept the connection: Connection refused");
  expect(*listeningAddress(*silent), "not chosen: had not answered when another one did");
  expect(door.address, "chosen");
  EXPECT_EQ(log.count("not chosen: not tried: another one answered"), 1U) << text;
}

TEST(Dialer, TriesAgainAndSaysWhatWasWrong) {
  Loop loop;
  Address refuses = *parseAddress("127.0.0.1");
  refuses.port = 1;
  Dialer::Plan plan = planTo({refuses});
  plan.retries = 3;
  const auto began = std::chrono::steady_clock::now();
  const auto refused = dial(loop, plan);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::RemoteError);
  EXPECT_GE(std::chrono::steady_clock::now() - began, milliseconds(10 + 20 + 30));
  EXPECT_NE(refused.error().text().find("cannot reach the test's door (4 tries): 127.0.0.1:1 does not accept"), std::string::npos)
      << refused.error().text();
  EXPECT_FALSE(dial(loop, planTo({}))) << "no address at all";
}

TEST(Dialer, DoesNotInsistForLongWhereTheSecretOfARootIsAnother) {
  Loop loop;
  Door door(loop, "127.0.0.1", Purpose::Root);
  Dialer::Plan plan = planTo({door.address});
  plan.purpose = Purpose::Root;
  plan.secret[5] ^= 1;
  plan.retries = 1000;
  plan.strangerLimit = milliseconds(200);
  const auto began = std::chrono::steady_clock::now();
  const auto refused = dial(loop, plan);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::InvalidUsage);
  EXPECT_NE(refused.error().text().find("does not know this job's secret"), std::string::npos) << refused.error().text();
  EXPECT_GE(std::chrono::steady_clock::now() - began, plan.strangerLimit);
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(5000));
  EXPECT_EQ(door.guests(), 0U);
}

TEST(Dialer, LackOfDescriptorsIsThisProcessesTrouble) {
  Loop loop;
  Door door(loop);
  const int used = open("/dev/null", O_RDONLY | O_CLOEXEC);  // the lowest that is free
  close(used);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{static_cast<rlim_t>(used), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto refused = dial(loop, planTo({door.address}));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::SystemError) << refused.error().text();
  EXPECT_NE(refused.error().text().find("Too many open files"), std::string::npos) << refused.error().text();
}

/// A job that ends, or a stranger, may be where the root is to be.
TEST(Dialer, WaitsForAStrangerToGoFromWhereARootWillBe) {
  Loop loop;
  Door door(loop, "127.0.0.1", Purpose::Root);
  loop.run([&] { door.secret[5] ^= 1; });
  std::thread change([&] {
    EXPECT_TRUE(becomes([&] { return door.asked > 2; }));
    loop.run([&] { door.secret = kSecret; });
  });
  Dialer::Plan plan = planTo({door.address});
  plan.purpose = Purpose::Root;
  plan.retries = 1000;
  EXPECT_TRUE(dial(loop, plan));
  change.join();
}

/// Where two hosts give a bridge the same address, another process of the job may answer.
TEST(Dialer, TakesNobodyElseOfTheJob) {
  Loop loop;
  Door right(loop);
  Door wrong(loop);
  loop.run([&] {
    right.secret = secretOf(1, kSecret);
    wrong.secret = secretOf(2, kSecret);
  });
  Dialer::Plan plan = planTo({wrong.address, right.address});
  plan.secret = secretOf(1, kSecret);
  EXPECT_TRUE(dial(loop, plan));
  EXPECT_EQ(wrong.guests(), 0U);
  plan.addresses.pop_back();
  plan.retries = 1;
  const auto refused = dial(loop, plan);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::RemoteError);
  EXPECT_NE(refused.error().text().find("(2 tries): " + describe(wrong.address) + " is another process"), std::string::npos)
      << refused.error().text();
}

/// Whoever dials is referred to by what waits for the answer; when the thread ends nothing waits any more.
TEST(Dialer, GoesWithTheThreadWhileNobodyAnswers) {
  auto token = std::make_shared<int>();
  const std::weak_ptr<int> kept = token;
  const auto silent = listenAt(toSocketAddress(*parseAddress("127.0.0.1")), "who says nothing");
  ASSERT_TRUE(silent) << silent.error().text();
  {
    Loop loop;
    loop.run([&] {
      (void)Dialer::start(loop.reactor, planTo({*listeningAddress(*silent)}),
                          [token = std::move(token)](Result<std::shared_ptr<Link>>) { ADD_FAILURE() << "nobody has answered"; });
    });
    EXPECT_FALSE(kept.expired());
  }
  EXPECT_TRUE(kept.expired());
}

TEST(Listener, SaysNothingToWhoAsksForSomethingElse) {
  Loop loop;
  Door door(loop);
  Dialer::Plan plan = planTo({door.address});
  plan.topic += 1;
  const auto refused = dial(loop, plan);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::RemoteError) << refused.error().text();
  plan = planTo({door.address});
  plan.purpose = Purpose::Root;
  EXPECT_FALSE(dial(loop, plan));
}

}  // namespace
}  // namespace tutti::bootstrap::link_test
