#include "transport/local/last_message.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tutti::transport::local::last_message_test {
namespace {

Call messageOf(uint64_t number) {
  Call message;
  message.collective = Collective::SendRecv;
  message.type = static_cast<DataType>(number % kNumDataTypes);
  message.root = static_cast<int32_t>(number * 7919 % 200000);
  message.count = number * 3 + 1;
  message.sequence = number;
  message.receives = number % 3 == 0;
  return message;
}

TEST(LastMessage, ZeroedMemoryHasNone) {
  const LastMessage last;
  EXPECT_FALSE(last.find().has_value());
}

TEST(LastMessage, TheLatestIsFoundExactly) {
  LastMessage last;
  for (const uint64_t number : {0UL, 1UL, 5UL, 99999UL, (1UL << 40) - 1}) {
    last.post(messageOf(number));
    EXPECT_EQ(last.find(), messageOf(number)) << number;
  }
  Call huge = messageOf(3);
  huge.count = ~uint64_t{0};
  last.post(huge);
  EXPECT_EQ(last.find(), huge);
}

TEST(LastMessage, AReaderFindsOneThatWasPostedOrNone) {
  constexpr uint64_t kMessages = 5000000;
  LastMessage last;
  std::atomic<bool> isOver{false};
  std::thread writer([&] {
    for (uint64_t number = 1; number <= kMessages; ++number) last.post(messageOf(number));
    isOver = true;
  });
  while (!isOver) {
    const auto message = last.find();
    if (!message) continue;
    ASSERT_EQ(*message, messageOf(message->sequence));
  }
  writer.join();
  EXPECT_EQ(last.find(), messageOf(kMessages));
}

}  // namespace
}  // namespace tutti::transport::local::last_message_test
