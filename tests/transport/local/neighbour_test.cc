#include "transport/local/neighbour.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "memory/host_allocator.h"

namespace tutti::transport::local {
namespace {

/// Another process that holds some memory until it is killed.
struct Holder {
  struct Told {
    ProcessEntry entry;
    uint64_t plain = 0;     ///< address of "plain" in ordinary memory
    uint64_t exported = 0;  ///< of "exported" in memory of its allocator
  };

  Holder() {
    told = static_cast<Told*>(page->data() == nullptr ? nullptr : new (page->data()) Told{});
    int ready[2];
    (void)!pipe(ready);
    pid = fork();
    if (pid == 0) hold(ready[1]);
    char byte = 0;
    (void)!read(ready[0], &byte, 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Holder() { end(); }
  void end() {
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    waitpid(std::exchange(pid, 0), nullptr, 0);
  }
  void hold(int ready) {
    static uint64_t token = 0x1234567890abcdef;
    static char plain[] = "plain";
    memory::HostAllocator allocator;
    told->entry.exportsFd = allocator.shareTable() + 1;
    void* exported = *allocator.allocate(Bytes(10000));
    std::memcpy(exported, "exported", 9);
    told->plain = reinterpret_cast<uint64_t>(plain);
    told->exported = reinterpret_cast<uint64_t>(exported);
    told->entry.pid = getpid();
    told->entry.token = token;
    told->entry.probe = reinterpret_cast<uint64_t>(&token);
    (void)!write(ready, "x", 1);
    for (;;) pause();
  }

  Result<memory::Mapping> page = memory::Mapping::shareable(Bytes(4096));
  Told* told = nullptr;
  pid_t pid = 0;
};

TEST(Neighbour, ReadsExportedMemoryWhereItLies) {
  Holder holder;
  Neighbour neighbour(holder.told->entry, true);
  ASSERT_NE(neighbour.reach() & kReachesExports, 0U);
  const std::byte* seen = neighbour.find(holder.told->exported, 9);
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(std::memcmp(seen, "exported", 9), 0);
  EXPECT_EQ(neighbour.find(holder.told->plain, 5), nullptr);
}

TEST(Neighbour, CopiesWhereTheSystemPermits) {
  Holder holder;
  Neighbour neighbour(holder.told->entry, true);
  if ((neighbour.reach() & kReachesCopies) == 0) GTEST_SKIP() << "this system does not let a process read another one's memory";
  char text[6] = {};
  ASSERT_TRUE(neighbour.copy(reinterpret_cast<std::byte*>(text), holder.told->plain, 6).ok());
  EXPECT_STREQ(text, "plain");
  EXPECT_FALSE(neighbour.copy(reinterpret_cast<std::byte*>(text), 16, 6).ok()) << "nothing lies there";
  holder.end();
  const Status status = neighbour.copy(reinterpret_cast<std::byte*>(text), holder.told->plain, 6);
  EXPECT_EQ(status.code(), Code::RemoteError);
}

TEST(Neighbour, DoesNotCopyWhereItIsNotWanted) {
  Holder holder;
  EXPECT_EQ(Neighbour(holder.told->entry, false).reach() & kReachesCopies, 0U);
}

/// A process of the same number in another container, or one that has ended: it reads something else there.
TEST(Neighbour, BelievesNobodyWithoutTheRightToken) {
  Holder holder;
  holder.told->entry.token = 1;
  EXPECT_EQ(Neighbour(holder.told->entry, true).reach() & kReachesCopies, 0U);
  holder.end();
  EXPECT_EQ(Neighbour(holder.told->entry, true).reach(), 0U);
}

}  // namespace
}  // namespace tutti::transport::local
