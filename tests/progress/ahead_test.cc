// How many messages a receiver has under way at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "../fuzz/silent_network.h"
#include "linked.h"

namespace tutti::progress::ahead_test {
namespace {

namespace net = transport::net;

constexpr uint64_t kBytes = 5000;
constexpr uint32_t kSlots = 4;

/// The other side: sends messages of kBytes. The oldest payload under way is complete when `together` are.
class Sender final : public net::RecvComm {
 public:
  Sender(size_t together, bool overtakes, size_t& most, uint64_t last)
      : together_(together), overtakes_(overtakes), most_(most), last_(last) {}

  Poll irecv(const net::InMessage& message, net::Request* request) override {
    requests_.push_back({message.tag == kHeaderTag, message.capacity});
    request->token = &requests_.back();
    if (message.tag == kHeaderTag) {
      Header header;
      header.number = ++headers_;
      header.bytes = header.pieceBytes = kBytes;
      std::memcpy(message.data, &header, sizeof header);
    } else {
      std::memset(message.data, static_cast<int>(headers_), message.capacity);
      most_ = std::max(most_, ++payloads_);
    }
    return Poll::Ready;
  }
  net::Tested test(net::Request request, uint64_t* bytes) override {
    const Asked& asked = *static_cast<Asked*>(request.token);
    if (asked.isHeader && headers_ > last_) return {Poll::Failed, false};
    if (!asked.isHeader && payloads_ < together_ && headers_ <= last_) return {};
    if (!asked.isHeader) --payloads_;
    *bytes = asked.bytes;
    return {Poll::Ready, true};
  }
  bool overtakes() const override { return overtakes_; }
  Status status() const override { return error(Code::RemoteError, "ended"); }
  std::string peerText() const override { return "nowhere"; }

 private:
  struct Asked {
    bool isHeader;
    uint64_t bytes;
  };
  const size_t together_;
  const bool overtakes_;
  size_t& most_;  ///< payloads under way at once
  const uint64_t last_;  ///< messages, and then the connection ends
  std::deque<Asked> requests_;
  uint64_t headers_ = 0;
  size_t payloads_ = 0;
};

class Ahead : public testing::Test {
 protected:
  void connect(size_t together, bool overtakes, uint64_t last = 1000) {
    ASSERT_TRUE(pipe_.has_value());
    ASSERT_TRUE(poller_.open().ok());
    auto sender = std::make_unique<Sender>(together, overtakes, most_, last);
    job_ = std::make_unique<RecvJob>(network_, 0, std::make_unique<fuzz::OneListener>(std::move(sender)), pipe_->view(), kBytes, nullptr,
                                     Peer{Rank(1), "there"}, nullptr);
    end_ = std::make_unique<RecvEnd>(pipe_->view());
  }
  void TearDown() override {
    if (job_) job_->stop(poller_, JobState::Closed);
  }
  void advance() {
    for (int i = 0; i < 100; ++i) (void)job_->advance(poller_);
  }

  Result<Pipe> pipe_ = Pipe::create(kSlots, 8192);
  fuzz::SilentNetwork network_;
  Poller poller_;
  size_t most_ = 0;
  std::unique_ptr<RecvJob> job_;
  std::unique_ptr<RecvEnd> end_;
};

TEST_F(Ahead, SeveralMessagesAreUnderWayWhereOneMayOvertakeAnother) {
  ASSERT_NO_FATAL_FAILURE(connect(3, true));
  for (int number = 1; number <= 20; ++number) {
    advance();
    ASSERT_TRUE(end_->ready()) << number << ": it waits for a message before it asks for the next";
    const std::vector<std::byte> expected(kBytes, static_cast<std::byte>(number));
    ASSERT_EQ(std::memcmp(end_->payload(), expected.data(), kBytes), 0) << "in order, each in its own place";
    end_->release();
  }
  EXPECT_LE(most_, kSlots) << "no more than have a slot";
}

TEST_F(Ahead, OneMessageIsUnderWayWhereNoneMay) {
  ASSERT_NO_FATAL_FAILURE(connect(1, false));
  for (int number = 1; number <= 20; ++number) {
    advance();
    ASSERT_TRUE(end_->ready());
    end_->release();
  }
  EXPECT_EQ(most_, 1U);
}

TEST_F(Ahead, AnEndBehindAMessageTakesNothingFromIt) {
  ASSERT_NO_FATAL_FAILURE(connect(1, true, 2));
  advance();
  EXPECT_EQ(pipe_->view().heads[1].filled.load(), 2U) << "both had come";
  EXPECT_EQ(job_->state(), JobState::Failed) << "and a third was announced";
}

TEST_F(Ahead, AReaderThatDoesNotReadStopsIt) {
  ASSERT_NO_FATAL_FAILURE(connect(1, true));
  advance();
  EXPECT_EQ(pipe_->view().heads[kSlots - 1].filled.load(), kSlots);
  EXPECT_EQ(pipe_->view().heads[kSlots].filled.load(), 0U) << "its slot is not free";
}

}  // namespace
}  // namespace tutti::progress::ahead_test
