// A peer that proved itself and then says what no engine says. Only the job that it talks to may suffer.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "linked.h"
#include "progress/wire.h"

namespace tutti::progress::hostile_test {
namespace {

/// A receiving job, and a bare comm to it.
struct Victim {
  Links links;
  Pipe pipe;
  std::unique_ptr<Engine> engine = makeEngine();
  std::unique_ptr<JobGroup> group = std::make_unique<JobGroup>(*engine);
  RecvJob* job = nullptr;
  std::unique_ptr<transport::net::Network> network = makeSocketNetwork();
  std::unique_ptr<transport::net::SendComm> comm;

  explicit Victim(Pipe made) : pipe(std::move(made)) {}

  static std::unique_ptr<Victim> make() {
    auto pipe = Pipe::create(4, 4096);
    if (!pipe) return nullptr;
    auto victim = std::make_unique<Victim>(std::move(*pipe));
    transport::net::Handle handle;
    auto job =
        victim->group->addReceive({.pipe = victim->pipe.view(), .peer = {Rank(3), "liar"}, .mostBytes = 1 << 20}, &handle);
    if (!job) return nullptr;
    victim->job = *job;
    auto connecting = victim->network->connect(0, handle);
    const bool connected = driveUntil([&] { (void)victim->engine->progress(); },
                                      [&] {
                                        auto polled = (*connecting)->poll();
                                        victim->comm = polled ? std::move(*polled) : nullptr;
                                        return victim->comm != nullptr;
                                      });
    return connected ? std::move(victim) : nullptr;
  }
  void say(const void* data, uint64_t bytes, int32_t tag) {
    transport::net::Request request;
    const transport::net::OutMessage message{static_cast<const std::byte*>(data), bytes, tag, {}};
    if (comm->isend({&message, 1}, &request) != Poll::Ready) return;
    for (int i = 0; i < 1000 && comm->test(request, nullptr).poll == Poll::Pending; ++i) (void)engine->progress();
  }
  bool fails() {
    return driveUntil([&] { (void)engine->progress(); }, [&] { return job->final(); }) && job->state() == JobState::Failed;
  }
};

Header rightHeader() {
  Header header;
  header.number = 1;
  header.bytes = 8;
  return header;
}

TEST(Liar, SaysARightHeaderAndIsHeard) {
  const auto victim = Victim::make();
  ASSERT_NE(victim, nullptr);
  const Header header = rightHeader();
  victim->say(&header, sizeof header, kHeaderTag);
  RecvEnd recv(victim->pipe.view());
  EXPECT_TRUE(driveUntil([&] { (void)victim->engine->progress(); }, [&] { return recv.ready(); }));
}

TEST(Liar, IsCutOffForAHeaderThatCannotBe) {
  const std::vector<std::function<void(Header&)>> lies{
      [](Header& h) { h.magic ^= 1; },
      [](Header& h) { h.number = 2; },
      [](Header& h) { h.number = 0; },
      [](Header& h) { h.bytes = transport::local::kInlineBytes + 1; },  // does not fit into the header
      [](Header& h) { h.pieceBytes = 4096; },                       // 8 bytes that are said to follow
      [](Header& h) { h.bytes = uint64_t{1} << 62, h.pieceBytes = 1 << 20; },
      [](Header& h) { h.bytes = (1 << 20) + 1, h.pieceBytes = 1 << 20; },  // more than allowed
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    const auto victim = Victim::make();
    ASSERT_NE(victim, nullptr);
    Header header = rightHeader();
    lies[i](header);
    victim->say(&header, sizeof header, kHeaderTag);
    ASSERT_TRUE(victim->fails()) << i;
    EXPECT_EQ(victim->job->status().code(), Code::RemoteError);
    EXPECT_NE(victim->job->status().text().find("rank 3 on liar at 127.0.0.1"), std::string::npos) << victim->job->status().text();
    RecvEnd recv(victim->pipe.view());
    EXPECT_FALSE(recv.ready());
  }
}

TEST(Liar, IsCutOffForSizesThatDoNotFit) {
  {
    const auto victim = Victim::make();
    const Header header = rightHeader();
    victim->say(&header, sizeof header - 1, kHeaderTag);
    EXPECT_TRUE(victim->fails()) << "a short header";
  }
  {
    const auto victim = Victim::make();
    std::byte many[200] = {};
    victim->say(many, sizeof many, kHeaderTag);
    EXPECT_TRUE(victim->fails()) << "a long header";
  }
  for (const uint64_t bytes : {uint64_t{99}, uint64_t{101}}) {
    const auto victim = Victim::make();
    Header header = rightHeader();
    header.bytes = 100;
    header.pieceBytes = 1 << 20;
    std::byte payload[200] = {};
    victim->say(&header, sizeof header, kHeaderTag);
    victim->say(payload, bytes, kPayloadTag);
    EXPECT_TRUE(victim->fails()) << bytes;
  }
}

TEST(Liar, DoesNotDisturbAnybodyElse) {
  const auto victim = Victim::make();
  ASSERT_NE(victim, nullptr);
  Link* const link = victim->links.make(*victim->group, *victim->group);
  Header header = rightHeader();
  header.number = 77;
  victim->say(&header, sizeof header, kHeaderTag);
  ASSERT_TRUE(victim->fails());
  const std::byte word{1};
  link->push(&word, 1, 1);
  EXPECT_TRUE(driveUntil([&] { (void)victim->engine->progress(); }, [&] { return link->recv.ready(); }));
}

TEST(Liar, TalksNonsenseForAWhile) {
  std::mt19937_64 random(99);
  for (int round = 0; round < 40; ++round) {
    const auto victim = Victim::make();
    ASSERT_NE(victim, nullptr);
    RecvEnd recv(victim->pipe.view());
    for (int i = 0; i < 30 && !victim->job->final(); ++i) {
      Header header = rightHeader();
      header.number = static_cast<uint64_t>(i) + 1;
      std::vector<std::byte> bytes(sizeof header);
      std::memcpy(bytes.data(), &header, sizeof header);
      if (i > 10 || random() % 4 == 0) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
      victim->say(bytes.data(), bytes.size(), random() % 8 == 0 ? kPayloadTag : kHeaderTag);
      (void)victim->engine->progress();
      if (recv.ready()) recv.release();
    }
  }
}

}  // namespace
}  // namespace tutti::progress::hostile_test
