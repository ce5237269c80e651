#include "transport/plugin/network.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "../../observe/capture_log.h"
#include "../../progress/linked.h"

namespace tutti::transport::plugin::network_test {
namespace {

using progress::Engine;
using progress::JobGroup;
using progress::Link;
using progress::Links;

/// Of a network that carries short messages only, too: then payloads go in pieces.
void carryPipes(std::unique_ptr<net::Network> first, std::unique_ptr<net::Network> second) {
  Links links;
  std::vector<std::byte> data(9 << 20);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 11 + (i >> 9));
  std::vector<std::byte> room(data.size());
  const auto a = progress::makeEngine(std::move(first));
  const auto b = progress::makeEngine(std::move(second));
  ASSERT_TRUE(a && b);
  JobGroup from(*a);
  JobGroup to(*b);
  Link* const link = links.make(from, to);
  ASSERT_NE(link, nullptr);
  const auto drive = [&] { (void)a->progress(), (void)b->progress(); };
  const std::vector<uint64_t> sizes{0, 1, 32, 33, 5000, Link::kSlotBytes, Link::kSlotBytes + 1, 1 << 20, 9 << 20, 40, 9 << 20};
  link->readView().offering().make(9, room.data(), room.size());
  size_t sent = 0;
  for (size_t received = 0; received < sizes.size(); ++received) {
    for (; sent < sizes.size() && link->send.ready(sizes[sent]); ++sent) {
      if (sizes[sent] > Link::kSlotBytes) {
        link->pushReference(data.data(), sizes[sent], sent);
      } else {
        link->push(data.data(), sizes[sent], sent);
      }
    }
    ASSERT_TRUE(progress::driveUntil(drive, [&] { return link->recv.ready() || !to.status().ok() || !from.status().ok(); }));
    ASSERT_TRUE(link->recv.ready()) << from.status().text() << to.status().text();
    const progress::SlotHead& head = link->recv.head();
    ASSERT_EQ(head.signature, received);
    ASSERT_EQ(head.bytes, sizes[received]);
    ASSERT_EQ(std::memcmp(link->recv.payload(), data.data(), head.bytes), 0) << received;
    if (received == 8) {
      EXPECT_EQ(link->recv.payload(), room.data()) << "offered, without a copy";
    }
    link->recv.release();
  }
  ASSERT_TRUE(progress::driveUntil(drive, [&] { return link->send.drained(); }));
}

/// The example plugin, up to a version, on both sides.
class PluginOfVersion : public testing::TestWithParam<int> {
 protected:
  static std::unique_ptr<net::Network> open() {
    auto library = Library::load("example", GetParam());
    if (!library) {
      ADD_FAILURE() << library.error().text();
      return nullptr;
    }
    auto network = PluginNetwork::create(std::move(*library), {1, 0});
    if (!network) {
      ADD_FAILURE() << network.error().text();
      return nullptr;
    }
    return std::move(*network);
  }
};

TEST_P(PluginOfVersion, TellsItsDevices) {
  const auto network = open();
  ASSERT_NE(network, nullptr);
  EXPECT_EQ(network->name(), "Example");
  ASSERT_EQ(network->devices(), 1);
  const auto properties = network->properties(0);
  ASSERT_TRUE(properties);
  EXPECT_EQ(properties->name, "example0");
  EXPECT_EQ(properties->speedMbps, 10'000);
  EXPECT_EQ(properties->maxMessageBytes, GetParam() == 8 ? uint64_t{1} << 30 : uint64_t{1} << 40);
  EXPECT_FALSE(network->properties(1));
}

TEST_P(PluginOfVersion, CarriesPipes) { carryPipes(open(), open()); }

/// Version 8 cannot say how long a message may be.
class PluginOfShortMessages : public PluginOfVersion {};

TEST_P(PluginOfShortMessages, CarriesPipesInPieces) {
  setenv("NET_EXAMPLE_BREAK", "small", 1);
  auto first = open();
  auto second = open();
  unsetenv("NET_EXAMPLE_BREAK");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->properties(0)->maxMessageBytes, 100'000U);
  carryPipes(std::move(first), std::move(second));
}

TEST_P(PluginOfVersion, MovesWithoutAnybodyDrivingAfterAKick) {
  Links links;
  const std::vector<std::byte> data(4 << 20, std::byte{6});
  const auto a = progress::makeEngine(open());
  const auto b = progress::makeEngine(open());
  JobGroup from(*a);
  JobGroup to(*b);
  Link* const link = links.make(from, to);
  const auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  ASSERT_TRUE(progress::driveUntil(nap, [&] { return from.settled() && to.settled(); }));
  link->pushReference(data.data(), data.size(), 1);
  a->kick();
  const auto take = [&] { (void)b->progressOrWait(std::chrono::milliseconds(1)); };
  EXPECT_TRUE(progress::driveUntil(take, [&] { return link->recv.ready(); })) << from.status().text();
}

TEST_P(PluginOfVersion, TellsThatThePeerIsGone) {
  Links links;
  const auto a = progress::makeEngine(open());
  const auto b = progress::makeEngine(open());
  auto from = std::make_unique<JobGroup>(*a);
  ErrorLatch latch;
  JobGroup to(*b, &latch);
  Link* const link = links.make(*from, to);
  const auto drive = [&] { (void)a->progress(), (void)b->progress(); };
  ASSERT_TRUE(progress::driveUntil(drive, [&] { return from->settled() && to.settled(); }));
  from.reset();
  ASSERT_TRUE(progress::driveUntil(drive, [&] { return link->receiver->final(); }));
  EXPECT_EQ(latch.code(), Code::RemoteError);
  EXPECT_NE(link->receiver->status().text().find("rank 0 on sender-host at Example"), std::string::npos) << link->receiver->status().text();
}

INSTANTIATE_TEST_SUITE_P(All, PluginOfVersion, testing::Values(8, 9, 10, 11));
INSTANTIATE_TEST_SUITE_P(All, PluginOfShortMessages, testing::Values(9, 10, 11));

class OpenExternal : public testing::Test {
 protected:
  ~OpenExternal() override { unsetenv("NET_EXAMPLE_BREAK"); }
};

TEST_F(OpenExternal, TakesTheFirstThatWorks) {
  EXPECT_EQ(openExternal("none", "", {1, 0}), nullptr);
  EXPECT_EQ(openExternal("no-such-plugin", "", {1, 0}), nullptr);
  const auto found = openExternal("no-such-plugin,libm.so.6,example", "", {1, 0});
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->name(), "Example");
}

TEST_F(OpenExternal, WarnsWhereNothingOfTheListCanBeUsed) {
  const observe::play::CaptureLog log("WARN");
  EXPECT_EQ(openExternal("", "", {1, 0}), nullptr) << "nobody has asked for one";
  EXPECT_EQ(openExternal("none", "", {1, 0}), nullptr);
  EXPECT_NE(openExternal("no-such-plugin,example", "", {1, 0}), nullptr);
  EXPECT_EQ(log.count("gives no network"), 0U) << log.text();
  EXPECT_EQ(openExternal("no-such-plugin,libm.so.6", "", {1, 0}), nullptr);
  EXPECT_EQ(log.count("NCCL_NET_PLUGIN=no-such-plugin,libm.so.6 gives no network, so sockets are used: Could not find: no-such-plugin"), 1U)
      << log.text();
  EXPECT_EQ(log.count("libm.so.6 exports no network of version 8 to 11"), 1U) << log.text();
}

TEST_F(OpenExternal, HasTheNameThatIsWanted) {
  EXPECT_NE(openExternal("example", "EXAMPLE", {1, 0}), nullptr);
  EXPECT_EQ(openExternal("example", "Socket", {1, 0}), nullptr);
  EXPECT_EQ(openExternal("example", "Exampl", {1, 0}), nullptr);
}

TEST_F(OpenExternal, PassesOverThoseThatMisbehave) {
  for (const char* where : {"init", "devices", "none", "properties"}) {
    setenv("NET_EXAMPLE_BREAK", where, 1);
    EXPECT_EQ(openExternal("example", "", {1, 0}), nullptr) << where;
  }
  unsetenv("NET_EXAMPLE_BREAK");
  EXPECT_NE(openExternal("example", "", {1, 0}), nullptr) << "an init that failed is tried again";
}

}  // namespace
}  // namespace tutti::transport::plugin::network_test
