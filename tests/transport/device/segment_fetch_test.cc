// The client of segment_server.h, against servers that do not do what they should.
#include <poll.h>

#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "segment_play.h"
#include "transport/device/segment_server.h"

namespace tutti::transport::device::segment_fetch_test {
namespace {

using namespace play;
using memory::Shared;
using memory::ShareKind;

Result<Shared> plainShare(uint64_t bytes) {
  Shared shared;
  shared.ticket.kind = ShareKind::LegacyIpc;
  shared.ticket.bytes = bytes;
  return shared;
}

/// Listens under a key and answers each client in turn with what the test says; empty: closes without an answer.
class FalseServer {
 public:
  using Answer = std::function<void(int client)>;
  explicit FalseServer(std::vector<Answer> answers) {
    key_.bytes.fill(static_cast<uint8_t>(getpid()));
    socket_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const SegmentAddress address(key_);
    EXPECT_EQ(bind(socket_.get(), address.raw(), address.size()), 0);
    EXPECT_EQ(listen(socket_.get(), 8), 0);
    thread_ = std::thread([this, answers = std::move(answers)] {
      for (const Answer& answer : answers) {
        const UniqueFd client(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        SegmentRequest request;
        if (!answer) continue;
        EXPECT_EQ(recv(client.get(), &request, sizeof request, 0), static_cast<ssize_t>(sizeof request));
        answer(client.get());
      }
    });
  }
  FalseServer(const FalseServer&) = delete;
  FalseServer& operator=(const FalseServer&) = delete;
  ~FalseServer() { thread_.join(); }
  const ProcessKey& key() const { return key_; }

 private:
  ProcessKey key_;
  UniqueFd socket_;
  std::thread thread_;
};

TEST(FetchSegment, AsksAgainWhenItWasDropped) {
  const NothingIsLeft check;
  FalseServer server({nullptr, nullptr, nullptr, [](int client) { sendReply(client, plainShare(77)); }});
  const auto shared = fetchSegment({server.key(), 1, memory::Place::Device, 77}, milliseconds(5000));
  ASSERT_TRUE(shared) << shared.error().text();
  EXPECT_EQ(shared->ticket.bytes, 77u);
}

/// Sends a reply with as many descriptors as `fds` has.
void sendWith(int client, const SegmentReply& reply, size_t bytes, std::vector<int> fds) {
  iovec part{const_cast<SegmentReply*>(&reply), bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char room[CMSG_SPACE(4 * sizeof(int))] = {};
  if (!fds.empty()) {
    message.msg_control = room;
    message.msg_controllen = CMSG_LEN(fds.size() * sizeof(int));
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(head), fds.data(), fds.size() * sizeof(int));
  }
  EXPECT_GE(sendmsg(client, &message, MSG_NOSIGNAL), 0);
}

TEST(FetchSegment, TrustsNoAnswerThatIsNone) {
  const NothingIsLeft check;
  SegmentReply good;
  good.ticket.kind = ShareKind::PosixFd;
  SegmentReply alien = good;
  alien.mark ^= 1;
  SegmentReply text = good;
  text.textBytes = 4000;
  SegmentReply odd = good;
  odd.code = 99;
  FalseServer server({
      [&](int client) { sendWith(client, good, sizeof good, {}); },
      [&](int client) {
        sendWith(client, good, sizeof good - 1, {0, 1});
      },
      [&](int client) { sendWith(client, alien, sizeof good, {0}); },
      [&](int client) {
        sendWith(client, text, sizeof good, {0, 1, 2});
      },
      [&](int client) { sendWith(client, odd, sizeof good, {0}); },
  });
  for (int i = 0; i < 5; ++i) {
    const auto shared = fetchSegment({server.key(), 0, memory::Place::Device, 1}, milliseconds(5000));
    ASSERT_FALSE(shared) << i;
    EXPECT_EQ(shared.error().code(), Code::RemoteError) << shared.error().text();
  }
}

TEST(FetchSegment, DescriptorsThatNobodyAskedForAreClosed) {
  const NothingIsLeft check;
  SegmentReply plain;
  plain.ticket.kind = ShareKind::LegacyIpc;
  SegmentReply virtualMemory;
  virtualMemory.ticket.kind = ShareKind::PosixFd;
  FalseServer server({
      [&](int client) { sendWith(client, plain, sizeof plain, {0}); },
      [&](int client) {
        sendWith(client, virtualMemory, sizeof virtualMemory, {0, 1, 2});
      },
  });
  const auto first = fetchSegment({server.key(), 0, memory::Place::Device, 1}, milliseconds(5000));
  ASSERT_TRUE(first) << first.error().text();
  EXPECT_FALSE(first->fd);
  const auto second = fetchSegment({server.key(), 0, memory::Place::Device, 1}, milliseconds(5000));
  ASSERT_FALSE(second) << "which of them is meant?";
  EXPECT_EQ(second.error().code(), Code::SystemError);
}

TEST(FetchSegment, AServerThatNeverAnswersCostsTheLimit) {
  const NothingIsLeft check;
  std::promise<void> over;
  FalseServer server({[&](int) { over.get_future().wait(); }});
  const auto began = SteadyClock::now();
  const auto shared = fetchSegment({server.key(), 0, memory::Place::Device, 1}, milliseconds(150));
  EXPECT_GE(since(began), milliseconds(150));
  EXPECT_LT(since(began), milliseconds(2000));
  over.set_value();
  ASSERT_FALSE(shared);
  EXPECT_EQ(shared.error().code(), Code::RemoteError);
}

}  // namespace
}  // namespace tutti::transport::device::segment_fetch_test
