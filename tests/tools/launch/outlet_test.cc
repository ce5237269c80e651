#include "launch/outlet.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "launch/descriptor.h"

namespace tutti::launch::outlet_test {
namespace {

struct OutletTest : testing::Test {
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);  // the writing end blocks, as a shell's does
    reading.reset(ends[0]);
    writing.reset(ends[1]);
    (void)signal(SIGPIPE, SIG_IGN);
  }
  std::string readAll(size_t bytes) {
    std::string text(bytes, '\0');
    size_t filled = 0;
    while (filled < bytes) {
      const ssize_t got = read(reading.get(), text.data() + filled, bytes - filled);
      if (got <= 0) break;
      filled += static_cast<size_t>(got);
    }
    return text;
  }
  Descriptor reading;
  Descriptor writing;
};

TEST_F(OutletTest, WritesWhatThereIsRoomForAndNeverBlocks) {
  Outlet outlet(writing.get());
  std::string sent;
  for (int i = 0; i < 60000; ++i) sent += std::to_string(i) + "\n";
  outlet.text() = sent;
  EXPECT_TRUE(outlet.isFull());
  outlet.flush();  // would hang here if it wrote more than the pipe takes
  EXPECT_FALSE(outlet.isEmpty());
  std::string received;
  while (received.size() < sent.size()) {
    const size_t before = outlet.text().size();
    received += readAll(sent.size() - received.size() - before);
    outlet.flush();
  }
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(outlet.isEmpty());
  EXPECT_FALSE(outlet.isBroken());
}

TEST_F(OutletTest, AReaderThatHasGoneBreaksIt) {
  Outlet outlet(writing.get());
  reading.reset();
  outlet.text() = "text";
  outlet.flush();
  EXPECT_TRUE(outlet.isBroken());
  EXPECT_TRUE(outlet.isEmpty());
}

}  // namespace
}  // namespace tutti::launch::outlet_test
