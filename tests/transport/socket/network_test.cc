#include "transport/socket/network.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "joined.h"
#include "transport/socket/recv_comm.h"
#include "transport/socket/wire.h"

namespace tutti::transport::socket::network_test {
namespace {

size_t entriesOf(const char* folder) {
  size_t count = 0;
  DIR* const dir = opendir(folder);
  if (dir == nullptr) return 0;
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

std::vector<std::byte> randomBytes(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  uint64_t word = seed * 2 + 1;
  for (size_t i = 0; i + sizeof word <= size; i += sizeof word) {
    word *= 6364136223846793005U;
    std::memcpy(bytes.data() + i, &word, sizeof word);
  }
  return bytes;
}

net::OutMessage out(const std::vector<std::byte>& data, int32_t tag) { return {data.data(), data.size(), tag, {}}; }
net::InMessage in(std::vector<std::byte>& data, int32_t tag) { return {data.data(), data.size(), tag, {}}; }

TEST(SocketNetwork, TellsItsDevices) {
  const auto network = SocketNetwork::create({{.interface = "lo", .address = at("127.0.0.1"), .speedMbps = 40'000},
                                              {.interface = "lo", .address = at("::1")},
                                              {.interface = "lo:2", .address = at("127.0.0.2")}},
                                             {});
  ASSERT_TRUE(network) << network.error().text();
  EXPECT_EQ((*network)->name(), "Socket");
  ASSERT_EQ((*network)->devices(), 2);
  const auto properties = (*network)->properties(0);
  ASSERT_TRUE(properties);
  EXPECT_EQ(properties->name, "lo");
  EXPECT_EQ(properties->speedMbps, 40'000);
  EXPECT_TRUE(net::checkProperties(*properties).ok());
  EXPECT_TRUE(net::checkProperties(*(*network)->properties(1)).ok());
  EXPECT_FALSE((*network)->properties(2));
  EXPECT_FALSE((*network)->listen(-1));
}

TEST(SocketNetwork, NeedsAnAddressOfThisMachine) {
  EXPECT_FALSE(SocketNetwork::create({}, {}));
  const auto foreign = SocketNetwork::create({{.interface = "x", .address = at("192.0.2.1")}}, {});
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().text().find("192.0.2.1"), std::string::npos) << foreign.error().text();
  EXPECT_TRUE(SocketNetwork::create({{.interface = "x", .address = at("192.0.2.1")}, {.interface = "lo", .address = at("127.0.0.1")}}, {}));
}

class SocketStreams : public testing::TestWithParam<Settings> {};

TEST_P(SocketStreams, CarryMessagesOfAllSizesInOrder) {
  const auto a = makeNetwork({"127.0.0.1"}, GetParam());
  const auto b = makeNetwork({"127.0.0.1"}, GetParam());
  const Joined joined = Joined::make(*a, *b);
  ASSERT_TRUE(joined.problem.ok()) << joined.problem.text();
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    const auto data = randomBytes(random() % (uint64_t{1} << (random() % 22)), random());
    std::vector<std::byte> room(data.size() + random() % 100);
    net::Request sent;
    net::Request received;
    const net::OutMessage message = out(data, i % 3);
    ASSERT_EQ(joined.send->isend({&message, 1}, &sent), Poll::Ready);
    ASSERT_EQ(joined.recv->irecv(in(room, i % 3), &received), Poll::Ready);
    const auto bytes = joined.finish(sent, received);
    ASSERT_TRUE(bytes) << joined.send->status().text() << joined.recv->status().text();
    ASSERT_EQ(*bytes, data.size());
    room.resize(data.size());
    ASSERT_EQ(room, data) << i;
  }
}

TEST_P(SocketStreams, KeepManyRequestsUnderWay) {
  const auto a = makeNetwork({"127.0.0.1"}, GetParam());
  const Joined joined = Joined::make(*a, *a);
  ASSERT_TRUE(joined.problem.ok()) << joined.problem.text();
  std::vector<std::vector<std::byte>> data;
  std::vector<std::vector<std::byte>> room;
  std::vector<net::Request> sent(net::kMaxRequests);
  std::vector<net::Request> received(net::kMaxRequests);
  for (int i = 0; i < net::kMaxRequests; ++i) {
    data.push_back(randomBytes(static_cast<size_t>(i * i) * 700, static_cast<uint64_t>(i)));
    room.emplace_back(data.back().size());
    const net::OutMessage message = out(data.back(), 9);
    ASSERT_EQ(joined.send->isend({&message, 1}, &sent[static_cast<size_t>(i)]), Poll::Ready);
    ASSERT_EQ(joined.recv->irecv(in(room.back(), 9), &received[static_cast<size_t>(i)]), Poll::Ready);
  }
  net::Request none;
  const net::OutMessage oneMore = out(data[1], 9);
  EXPECT_EQ(joined.send->isend({&oneMore, 1}, &none), Poll::Pending);
  EXPECT_FALSE(none);
  EXPECT_EQ(joined.recv->irecv(in(room[1], 9), &none), Poll::Pending);
  for (size_t i = 0; i < sent.size(); ++i) {
    ASSERT_EQ(joined.finish(sent[i], received[i]), data[i].size());
    EXPECT_EQ(room[i], data[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SocketStreams,
                         testing::Values(Settings{}, Settings{.threads = 1, .socketsPerThread = 1},
                                         Settings{.threads = 2, .socketsPerThread = 3},
                                         Settings{.threads = 3, .socketsPerThread = 1, .minTaskBytes = 1, .inlineBytes = 0},
                                         Settings{.threads = 2, .socketsPerThread = 2, .cores = 2},
                                         Settings{.threads = 2, .socketsPerThread = 3, .cores = 4},
                                         Settings{.receiveBuffer = 131072, .sendBuffer = 65536}));

TEST(SocketComm, SendsHeaderAndPayloadTogetherAsTwoMessages) {
  const auto network = makeNetwork();
  const Joined joined = Joined::make(*network, *network);
  ASSERT_TRUE(joined.problem.ok());
  const auto first = randomBytes(64, 1);
  const auto second = randomBytes(100'000, 2);
  std::vector<std::byte> roomFirst(64);
  std::vector<std::byte> roomSecond(100'000);
  const std::array<net::OutMessage, 2> both{out(first, 1), out(second, 2)};
  ASSERT_GE(joined.send->maxGather(), 2U);
  net::Request sent;
  net::Request received[2];
  ASSERT_EQ(joined.send->isend(both, &sent), Poll::Ready);
  ASSERT_EQ(joined.recv->irecv(in(roomSecond, 2), &received[1]), Poll::Ready) << "matched by tag, not by order";
  ASSERT_EQ(joined.recv->irecv(in(roomFirst, 1), &received[0]), Poll::Ready);
  ASSERT_TRUE(joined.finish(sent, received[0]));
  ASSERT_TRUE(joined.finish({}, received[1]));
  EXPECT_EQ(roomFirst, first);
  EXPECT_EQ(roomSecond, second);
}

/// A pair of comms that small messages go through.
class SmallMessages : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(joined.problem.ok()) << joined.problem.text(); }
  net::Request sendOne() {
    net::Request sent;
    const net::OutMessage message = out(data, 9);
    EXPECT_EQ(joined.send->isend({&message, 1}, &sent), Poll::Ready);
    return sent;
  }
  void carryOne() {
    const net::Request sent = sendOne();
    if (!waiting) expectOne();
    ASSERT_EQ(joined.finish(sent, waiting), data.size()) << joined.recv->status().text();
    waiting = {};
  }
  /// The sender closes the connection, and the receiver's kernel knows.
  void closeSender() {
    joined.send.reset();
    pollfd end{joined.recv->descriptors()[0], POLLRDHUP, 0};
    ASSERT_EQ(poll(&end, 1, 10'000), 1);
  }
  void expectOne() { ASSERT_EQ(joined.recv->irecv(in(room, 9), &waiting), Poll::Ready); }
  Poll test() { return joined.recv->test(waiting, nullptr).poll; }
  int unread() const {
    int bytes = -1;
    EXPECT_EQ(ioctl(joined.recv->descriptors()[0], FIONREAD, &bytes), 0);
    return bytes;
  }

  static constexpr int kEnoughTests = 100;
  const std::unique_ptr<SocketNetwork> network = makeNetwork();
  Joined joined = Joined::make(*network, *network);
  const std::vector<std::byte> data = randomBytes(100, 1);
  std::vector<std::byte> room = std::vector<std::byte>(100);
  net::Request waiting;
};

/// To take a message from the kernel costs as much as to send one, and would come before the answer.
TEST_F(SmallMessages, StayInTheKernelWhileTheyMayBeAnswered) {
  ASSERT_NO_FATAL_FAILURE(carryOne());
  expectOne();
  for (int pass = 0; pass < 2; ++pass) {
    const net::Tested tested = joined.recv->test(waiting, nullptr);
    EXPECT_EQ(tested.poll, Poll::Pending);
    EXPECT_TRUE(tested.moved) << "wants to be asked again";
    EXPECT_GT(unread(), 100) << pass;
  }
  ASSERT_NO_FATAL_FAILURE(carryOne());
  EXPECT_GT(unread(), 200) << "taken together";
}

TEST_F(SmallMessages, AreTakenBeforeTheyAreMany) {
  int most = 0;
  for (int i = 0; i < 50; ++i) {
    ASSERT_NO_FATAL_FAILURE(carryOne());
    most = std::max(most, unread());
    ASSERT_EQ(room, data) << i;
  }
  EXPECT_LE(most, 536) << "more makes the kernel acknowledge while the next is sent";
}

TEST_F(SmallMessages, AreTakenWhenNothingElseComes) {
  ASSERT_NO_FATAL_FAILURE(carryOne());
  expectOne();
  for (int i = 0; i < kEnoughTests; ++i) ASSERT_EQ(test(), Poll::Pending);
  EXPECT_EQ(unread(), 0);
}

TEST_F(SmallMessages, AreTakenAfterAnEventAlthoughNothingElseComes) {
  ASSERT_NO_FATAL_FAILURE(carryOne());
  expectOne();
  joined.recv->expect();
  ASSERT_EQ(test(), Poll::Pending);
  EXPECT_EQ(unread(), 0);
}

TEST_F(SmallMessages, HideNoEndOfTheConnection) {
  for (const bool isTold : {true, false}) {
    joined = Joined::make(*network, *network);
    waiting = {};
    ASSERT_NO_FATAL_FAILURE(carryOne());
    expectOne();
    ASSERT_NO_FATAL_FAILURE(closeSender());
    if (isTold) joined.recv->expect();
    Poll found = Poll::Pending;
    for (int i = 0; i < (isTold ? 1 : kEnoughTests) && found == Poll::Pending; ++i) found = test();
    EXPECT_EQ(found, Poll::Failed) << isTold;
    EXPECT_NE(joined.recv->status().text().find("closed the connection"), std::string::npos) << joined.recv->status().text();
  }
}

/// One event, for a message and the end behind it, where so much has been seen already that it is taken before the next look.
TEST_F(SmallMessages, HideNoEndThatCameWithOne) {
  while (unread() < 400) ASSERT_NO_FATAL_FAILURE(carryOne());
  const net::Request sent = sendOne();
  while (joined.send->test(sent, nullptr).poll == Poll::Pending) {
  }
  ASSERT_NO_FATAL_FAILURE(closeSender());
  joined.recv->expect();
  EXPECT_EQ(joined.recv->check(), Poll::Pending) << "nobody has asked for it yet";
  expectOne();
  ASSERT_EQ(test(), Poll::Ready);
  expectOne();
  bool moved = true;
  Poll found = Poll::Pending;
  for (int i = 0; i < kEnoughTests && moved && found == Poll::Pending; ++i) {
    const net::Tested tested = joined.recv->test(waiting, nullptr);
    found = tested.poll;
    moved = tested.moved;
  }
  EXPECT_EQ(found, Poll::Failed) << "nothing more was asked for, and no other event comes";
}

/// The same of an end within a message, of which only what was seen is there.
TEST_F(SmallMessages, HideNoEndWithinALargeOne) {
  int raw[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, raw), 0);
  std::vector<UniqueFd> sockets;
  sockets.emplace_back(raw[0]);
  auto comm = RecvComm::create(std::move(sockets), at("127.0.0.1"), {}, {});
  ASSERT_TRUE(comm);
  const Frame frame{.bytes = 1000, .tag = 9, .pieceBytes = 0};
  ASSERT_EQ(write(raw[1], &frame, sizeof frame), static_cast<ssize_t>(sizeof frame));
  std::vector<std::byte> wanted(1000);
  net::Request request;
  ASSERT_EQ((*comm)->irecv(in(wanted, 9), &request), Poll::Ready);
  ASSERT_EQ((*comm)->test(request, nullptr).poll, Poll::Pending);
  close(raw[1]);
  (*comm)->expect();
  EXPECT_EQ((*comm)->test(request, nullptr).poll, Poll::Failed);
}

/// Several at once, seen and taken together with what follows them.
TEST_F(SmallMessages, ComeWholeAmongLargeOnes) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 1500; ++i) {
    const size_t many = 1 + random() % 6;
    std::vector<std::vector<std::byte>> sentData;
    std::vector<std::vector<std::byte>> received;
    std::vector<net::Request> sent(many);
    std::vector<net::Request> wanted(many);
    for (size_t k = 0; k < many; ++k) {
      sentData.push_back(randomBytes(random() % 8 == 0 ? random() % 60'000 : random() % 300, random()));
      received.emplace_back(sentData.back().size());
    }
    for (size_t k = 0; k < many; ++k) {
      const net::OutMessage message = out(sentData[k], 9);
      ASSERT_EQ(joined.send->isend({&message, 1}, &sent[k]), Poll::Ready);
    }
    for (size_t k = 0; k < many; ++k) {
      if (random() % 2 == 0 && sent[0] && joined.send->test(sent[0], nullptr).poll == Poll::Ready) sent[0] = {};
      ASSERT_EQ(joined.recv->irecv(in(received[k], 9), &wanted[k]), Poll::Ready);
    }
    if (random() % 4 == 0) joined.recv->expect();
    for (size_t k = 0; k < many; ++k) {
      ASSERT_EQ(joined.finish(sent[k], wanted[k]), sentData[k].size());
      ASSERT_EQ(received[k], sentData[k]) << i;
    }
    for (uint64_t idle = random() % 3 * 40; idle > 0; --idle) ASSERT_EQ(joined.recv->check(), Poll::Pending);
  }
}

TEST(SocketComm, RefusesMoreThanThereIsRoomFor) {
  const auto network = makeNetwork();
  const Joined joined = Joined::make(*network, *network);
  ASSERT_TRUE(joined.problem.ok());
  const auto data = randomBytes(100, 1);
  std::vector<std::byte> room(99);
  const net::OutMessage message = out(data, 1);
  net::Request sent;
  net::Request received;
  ASSERT_EQ(joined.send->isend({&message, 1}, &sent), Poll::Ready);
  ASSERT_EQ(joined.recv->irecv(in(room, 1), &received), Poll::Ready);
  EXPECT_FALSE(joined.finish(sent, received));
  EXPECT_EQ(joined.recv->status().code(), Code::RemoteError);
  EXPECT_NE(joined.recv->status().text().find("100 bytes where 99"), std::string::npos) << joined.recv->status().text();
}

TEST(SocketComm, TellsALeaveFromALoss) {
  const auto network = makeNetwork();
  for (const bool politely : {true, false}) {
    Joined joined = Joined::make(*network, *network);
    ASSERT_TRUE(joined.problem.ok());
    if (politely) joined.send->takeLeave();
    joined.send.reset();
    std::vector<std::byte> room(10);
    Poll found = Poll::Pending;
    for (int i = 0; i < 10'000 && found == Poll::Pending; ++i) found = joined.recv->check();
    EXPECT_EQ(found, politely ? Poll::Ready : Poll::Failed);
  }
  for (const bool politely : {true, false}) {
    Joined joined = Joined::make(*network, *network);
    ASSERT_TRUE(joined.problem.ok());
    if (politely) joined.recv->takeLeave();
    joined.recv.reset();
    Poll found = Poll::Pending;
    for (int i = 0; i < 10'000 && found == Poll::Pending; ++i) found = joined.send->check();
    EXPECT_EQ(found, politely ? Poll::Ready : Poll::Failed);
  }
}

TEST(SocketComm, StopsASenderWhoseReceiverDoesNotWant) {
  const auto network = makeNetwork({"127.0.0.1"}, {.receiveBuffer = 131072, .sendBuffer = 131072});
  const Joined joined = Joined::make(*network, *network);
  ASSERT_TRUE(joined.problem.ok());
  const auto data = randomBytes(4 << 20, 1);
  const net::OutMessage message = out(data, 1);
  net::Request sent;
  ASSERT_EQ(joined.send->isend({&message, 1}, &sent), Poll::Ready);
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(joined.send->test(sent, nullptr).poll, Poll::Pending) << "4 MiB lie in no buffer of 128 KiB";
    ASSERT_EQ(joined.recv->check(), Poll::Pending);
  }
  std::vector<std::byte> room(data.size());
  net::Request received;
  ASSERT_EQ(joined.recv->irecv(in(room, 1), &received), Poll::Ready);
  ASSERT_EQ(joined.finish(sent, received), data.size());
  EXPECT_EQ(room, data);
}

TEST(Connecting, SettlesOnAnAddressThatWorks) {
  const auto real = makeNetwork({"127.0.0.1"});
  const auto listener = real->listen(0);
  ASSERT_TRUE(listener);
  auto invitation = decode((*listener)->handle());
  ASSERT_TRUE(invitation);
  // Before it: an address that is silent, one where nobody listens, and one where somebody else does.
  const auto other = makeNetwork({"127.0.0.3"});
  const auto otherListener = other->listen(0);
  const auto elsewhere = decode((*otherListener)->handle());
  std::vector<Address> all{at("192.0.2.1", 9), at("127.0.0.2", 1), elsewhere->addresses[0], invitation->addresses[0]};
  invitation->addresses = all;
  auto connecting = real->connect(0, encode(*invitation));
  ASSERT_TRUE(connecting);
  const auto begin = std::chrono::steady_clock::now();
  std::unique_ptr<net::SendComm> comm;
  while (!comm && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) {
    auto polled = (*connecting)->poll();
    ASSERT_TRUE(polled) << polled.error().text();
    comm = std::move(*polled);
    (void)(*listener)->accept();
    (void)(*otherListener)->accept();
  }
  ASSERT_NE(comm, nullptr);
  EXPECT_EQ(comm->peerText(), all[3].text());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(Connecting, GivesUpAfterItsRetriesAndSaysWhatItTried) {
  const auto network = makeNetwork({"127.0.0.1"}, {.retryCount = 2, .retrySleepMs = 5});
  Invitation invitation;
  invitation.addresses = {at("127.0.0.1", 1), at("127.0.0.2", 2)};
  auto connecting = network->connect(0, encode(invitation));
  ASSERT_TRUE(connecting);
  Status problem;
  const auto begin = std::chrono::steady_clock::now();
  while (problem.ok() && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) {
    auto polled = (*connecting)->poll();
    if (!polled) problem = polled.error();
  }
  EXPECT_EQ(problem.code(), Code::RemoteError);
  for (const char* words : {"3 times", "127.0.0.1:1", "127.0.0.2:2", "refused"}) {
    EXPECT_NE(problem.text().find(words), std::string::npos) << problem.text();
  }
}

TEST(SocketNetwork, LeavesNoDescriptorAndNoThreadBehind) {
  std::thread([] {}).join();  // what a first thread brings along is there from now on
  const size_t descriptors = entriesOf("/proc/self/fd");
  const size_t threads = entriesOf("/proc/self/task");
  for (int i = 0; i < 5; ++i) {
    const auto network = makeNetwork({"127.0.0.1", "::1"}, {.threads = 2, .socketsPerThread = 2});
    const Joined joined = Joined::make(*network, *network);
    ASSERT_TRUE(joined.problem.ok()) << joined.problem.text();
    const auto listener = network->listen(0);
    const auto connecting = network->connect(0, (*listener)->handle());
    (void)(*connecting)->poll();  // left half way
    EXPECT_GT(entriesOf("/proc/self/fd"), descriptors);
  }
  EXPECT_EQ(entriesOf("/proc/self/fd"), descriptors);
  // The system lists a thread for a moment after it was joined.
  for (int i = 0; i < 1000 && entriesOf("/proc/self/task") > threads; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(entriesOf("/proc/self/task"), threads);
}

}  // namespace
}  // namespace tutti::transport::socket::network_test
