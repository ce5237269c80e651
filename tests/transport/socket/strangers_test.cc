// What listeners do about those who do not know the key: nothing that anybody else would notice.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <deque>
#include <random>
#include <thread>

#include "../../observe/capture_log.h"
#include "joined.h"
#include "transport/socket/handshake.h"
#include "transport/socket/stream.h"

namespace tutti::transport::socket::strangers_test {
namespace {

class Strangers : public testing::Test {
 protected:
  Strangers() { openDoor(150); }
  void openDoor(int32_t handshakeTimeoutMs) {
    listener_.reset();
    network_ = makeNetwork({"127.0.0.1"}, {.handshakeTimeoutMs = handshakeTimeoutMs});
    auto listener = network_->listen(0);
    listener_ = std::move(*listener);
    invitation_ = *decode(listener_->handle());
  }

  /// A blocking connection to the listener.
  UniqueFd knock() const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const Address& address = invitation_.addresses[0];
    EXPECT_EQ(::connect(fd.get(), address.raw(), address.length()), 0);
    const timeval limit{5, 0};
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
  }
  void expectNobodyListens() const {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_NE(::connect(fd.get(), invitation_.addresses[0].raw(), invitation_.addresses[0].length()), 0);
    EXPECT_EQ(errno, ECONNREFUSED);
  }
  void poll() {
    auto got = listener_->accept();
    ASSERT_TRUE(got) << got.error().text();
    EXPECT_EQ(*got, nullptr) << "a stranger was let in";
  }
  void pollFor(int ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    while (std::chrono::steady_clock::now() < end) poll();
  }
  /// Whether the other side has closed.
  bool closed(const UniqueFd& fd) {
    for (int i = 0; i < 1000; ++i) {
      poll();
      char byte = 0;
      const ssize_t got = recv(fd.get(), &byte, 1, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  void expectFriendsComeIn() {
    auto connecting = network_->connect(0, listener_->handle());
    ASSERT_TRUE(connecting);
    std::unique_ptr<net::RecvComm> got;
    std::unique_ptr<net::SendComm> sent;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while ((!got || !sent) && std::chrono::steady_clock::now() < end) {
      if (!sent) sent = std::move(*(*connecting)->poll());
      if (!got) got = std::move(*listener_->accept());
    }
    EXPECT_TRUE(got && sent);
  }
  /// Says `hello` and reads the answer; the proof comes after it.
  std::optional<Challenge> greet(const UniqueFd& fd, const Hello& hello) {
    EXPECT_EQ(send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof hello));
    Challenge challenge;
    size_t size = 0;
    for (int i = 0; i < 2000 && size < sizeof challenge; ++i) {
      poll();
      const ssize_t got = recv(fd.get(), reinterpret_cast<char*>(&challenge) + size, sizeof challenge - size, MSG_DONTWAIT);
      if (got == 0) return std::nullopt;
      if (got > 0) size += static_cast<size_t>(got);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return size == sizeof challenge ? std::optional(challenge) : std::nullopt;
  }
  Hello rightHello() const {
    Hello hello;
    hello.listenId = invitation_.listenId;
    hello.streams = 1;
    fillRandom(hello.nonce);
    return hello;
  }

  std::unique_ptr<SocketNetwork> network_;
  std::unique_ptr<net::Listener> listener_;
  Invitation invitation_;
};

/// It would be nobody's to drop them then.
TEST_F(Strangers, NobodyCanConnectWhileNoListenerIsOpen) {
  const UniqueFd early = knock();
  auto second = network_->listen(0);
  ASSERT_TRUE(second);
  listener_.reset();
  (void)knock();  // the second keeps the door open
  second->reset();
  char byte = 0;
  EXPECT_LE(recv(early.get(), &byte, 1, 0), 0) << "who waited is sent away";
  expectNobodyListens();
  listener_ = std::move(*network_->listen(0));
  expectFriendsComeIn();
}

/// Such as a program's helpers, which have copies of all its descriptors until they start something else.
TEST_F(Strangers, AForkedProcessKeepsNoDoorOpen) {
  const UniqueFd early = knock();
  for (int i = 0; i < 2000 && network_->pendingForTest() == 0; ++i) {
    poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(network_->pendingForTest(), 1u) << "it is let in, to prove itself";
  const pid_t child = fork();
  if (child == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  listener_.reset();
  char byte = 0;
  EXPECT_EQ(recv(early.get(), &byte, 1, 0), 0) << "who waited is sent away";
  expectNobodyListens();
  listener_ = std::move(*network_->listen(0));
  poll();
  pollfd quiet{network_->acceptDescriptors()[0], POLLIN, 0};
  EXPECT_EQ(::poll(&quiet, 1, 20), 0) << "nobody is there, and whoever waits sleeps";
  expectFriendsComeIn();
  EXPECT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST_F(Strangers, WhoSendGarbageAreDropped) {
  std::mt19937 random(11);
  for (int i = 0; i < 30; ++i) {
    const UniqueFd fd = knock();
    std::vector<char> garbage(sizeof(Hello) + random() % 4000);
    for (char& byte : garbage) byte = static_cast<char>(random());
    (void)send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(closed(fd)) << i;
  }
  expectFriendsComeIn();
}

TEST_F(Strangers, WhoSendTooLittleAreDroppedInTime) {
  const Hello hello = rightHello();
  std::vector<UniqueFd> fds;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{8}, sizeof hello - 1}) {
    fds.push_back(knock());
    if (bytes > 0) (void)send(fds.back().get(), &hello, bytes, MSG_NOSIGNAL);
  }
  for (int i = 0; i < 1000 && network_->pendingForTest() < fds.size(); ++i) poll();
  EXPECT_EQ(network_->pendingForTest(), fds.size());
  expectFriendsComeIn();
  pollFor(300);
  EXPECT_EQ(network_->pendingForTest(), 0U);
  for (const UniqueFd& fd : fds) EXPECT_TRUE(closed(fd));
}

TEST_F(Strangers, WhoDoNotKnowTheListenerAreDropped) {
  const UniqueFd fd = knock();
  Hello hello = rightHello();
  hello.listenId ^= 1;
  EXPECT_FALSE(greet(fd, hello));
  expectFriendsComeIn();
}

TEST_F(Strangers, WhoDoNotKnowTheKeyAreDropped) {
  const UniqueFd fd = knock();
  const Hello hello = rightHello();
  const auto challenge = greet(fd, hello);
  ASSERT_TRUE(challenge);
  EXPECT_TRUE(equal(challenge->proof, proveListener(invitation_.key, hello, challenge->nonce))) << "the listener proves itself first";
  Key wrong = invitation_.key;
  wrong[0] ^= 1;
  const Proof proof = proveConnector(wrong, hello, challenge->nonce);
  (void)send(fd.get(), proof.data(), proof.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(closed(fd));
  expectFriendsComeIn();
}

TEST_F(Strangers, WhoRepeatWhatTheyOverheardAreDropped) {
  const Hello hello = rightHello();
  const UniqueFd first = knock();
  const auto challenge = greet(first, hello);
  ASSERT_TRUE(challenge);
  const Proof overheard = proveConnector(invitation_.key, hello, challenge->nonce);
  const UniqueFd second = knock();
  ASSERT_TRUE(greet(second, hello));
  (void)send(second.get(), overheard.data(), overheard.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(closed(second)) << "another nonce, another proof";
  const UniqueFd third = knock();
  const auto again = greet(third, hello);
  ASSERT_TRUE(again);
  (void)send(third.get(), again->proof.data(), again->proof.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(closed(third)) << "the listener's own proof is not ours";
  expectFriendsComeIn();
}

TEST_F(Strangers, WhoKnowTheKeyMayNotClaimOtherStreams) {
  for (const auto& [stream, streams] : {std::pair<uint16_t, uint16_t>{1, 1}, {0, 2}, {7, 9}, {0, 0}}) {
    const UniqueFd fd = knock();
    Hello hello = rightHello();
    hello.stream = stream;
    hello.streams = streams;
    const auto challenge = greet(fd, hello);
    ASSERT_TRUE(challenge);
    const Proof proof = proveConnector(invitation_.key, hello, challenge->nonce);
    (void)send(fd.get(), proof.data(), proof.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(closed(fd));
  }
  expectFriendsComeIn();
}

TEST_F(Strangers, WhoCutTheHandshakeAnywhereDisturbNobody) {
  for (size_t cut = 0; cut < sizeof(Proof); cut += 5) {
    const UniqueFd fd = knock();
    const Hello hello = rightHello();
    const auto challenge = greet(fd, hello);
    ASSERT_TRUE(challenge);
    const Proof proof = proveConnector(invitation_.key, hello, challenge->nonce);
    if (cut > 0) (void)send(fd.get(), proof.data(), cut, MSG_NOSIGNAL);
  }
  pollFor(20);
  EXPECT_EQ(network_->pendingForTest(), 0U) << "closed ones are noticed at once";
  expectFriendsComeIn();
}

TEST_F(Strangers, InAnyNumberAreBounded) {
  std::vector<UniqueFd> fds;
  for (size_t i = 0; i < Acceptor::kMostPending + 50; ++i) {
    fds.push_back(knock());
    poll();
  }
  EXPECT_LE(network_->pendingForTest(), Acceptor::kMostPending);
  expectFriendsComeIn();
}

/// Whoever waits for the descriptor would be woken again and again, for nothing, as long as somebody stays in the queue.
TEST_F(Strangers, WhoHaveToWaitKeepNobodyAwake) {
  openDoor(10'000);
  std::vector<UniqueFd> fds;
  for (size_t i = 0; i < Acceptor::kMostPending + 50; ++i) fds.push_back(knock());
  poll();
  pollfd descriptor{network_->acceptDescriptors()[0], POLLIN, 0};
  EXPECT_EQ(::poll(&descriptor, 1, 0), 0) << "there is nothing that can be done now";
  EXPECT_EQ(network_->pendingForTest(), Acceptor::kMostPending);
  std::this_thread::sleep_for(Acceptor::kGraceOfSilent + Acceptor::kPause);
  expectFriendsComeIn();
}

/// However many come behind it: one that has just come, and knows a listener, has half a second.
TEST_F(Strangers, InAnyNumberDoNotPushOutWhoHasJustCome) {
  openDoor(10'000);
  const UniqueFd fd = knock();
  const Hello hello = rightHello();
  const auto challenge = greet(fd, hello);
  ASSERT_TRUE(challenge);
  const auto began = std::chrono::steady_clock::now();
  std::vector<UniqueFd> crowd;
  for (size_t i = 0; i < 2 * Acceptor::kMostPending; ++i) {
    crowd.push_back(knock());
    poll();
  }
  pollFor(120);  // the grace of the silent is over: they go first
  EXPECT_GE(network_->pendingForTest(), Acceptor::kMostPending - 1);
  if (std::chrono::steady_clock::now() - began > std::chrono::milliseconds(450)) GTEST_SKIP() << "the machine is too busy for this";
  const Proof proof = proveConnector(invitation_.key, hello, challenge->nonce);
  EXPECT_EQ(send(fd.get(), proof.data(), proof.size(), MSG_NOSIGNAL), static_cast<ssize_t>(proof.size()));
  std::unique_ptr<net::RecvComm> got;
  for (int i = 0; i < 1000 && !got; ++i) {
    got = std::move(*listener_->accept());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(got);
}

/// A thousand and more a second, each of whom stays: friends come in beside them, and soon.
TEST_F(Strangers, InAFloodDelayFriendsByLittle) {
  openDoor(10'000);
  std::atomic<bool> isOver{false};
  std::atomic<int> visits{0};
  std::thread flood([&] {
    std::deque<UniqueFd> staying;
    const auto began = std::chrono::steady_clock::now();
    while (!isOver) {
      staying.push_back(knock());
      if (staying.size() > 700) staying.pop_front();
      ++visits;
      std::this_thread::sleep_until(began + visits.load() * std::chrono::microseconds(600));
    }
  });
  while (visits < 300) poll();
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) expectFriendsComeIn();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(1500));
  isOver = true;
  flood.join();
}

TEST_F(Strangers, AreReportedOnceASecond) {
  const observe::play::CaptureLog log("INFO");
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 60; ++i) {
    const UniqueFd fd = knock();
    const std::vector<char> garbage(sizeof(Hello), 'x');
    (void)send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    const size_t before = log.count("dropped ");
    EXPECT_TRUE(closed(fd)) << i;
    EXPECT_EQ(log.count("dropped "), before) << "whoever polls may be in a pass of an engine, which logs nothing";
    network_->speak();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  EXPECT_EQ(log.count("dropped 1 connection from 127.0.0.1:"), 1U) << log.text();
  EXPECT_GE(log.count("it speaks another protocol"), 2U) << log.text();
  EXPECT_LE(static_cast<double>(log.count("dropped ")), seconds + 1) << log.text();
}

}  // namespace
}  // namespace tutti::transport::socket::strangers_test
