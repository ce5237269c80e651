#include "transport/local/neighbour.h"

#include <gtest/gtest.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "memory/host_allocator.h"

namespace tutti::transport::local::neighbour_test {
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
  EXPECT_EQ(neighbour.copy(reinterpret_cast<std::byte*>(text), 16, 6).code(), Code::SystemError) << "nothing lies there";
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

/// A thread that waits in the middle of the call for a page that nobody brings looks asleep.
TEST(Neighbour, AThreadThatSleepsInTheCallIsNotAtRest) {
  static char target[4096];
  (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  const pid_t parent = getpid();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto faults = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
    void* const late = mmap(nullptr, sizeof target, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uffdio_api api{UFFD_API, 0, 0};
    uffdio_register range{{reinterpret_cast<uint64_t>(late), sizeof target}, UFFDIO_REGISTER_MODE_MISSING, 0};
    const bool isSet = faults >= 0 && ioctl(faults, UFFDIO_API, &api) == 0 && ioctl(faults, UFFDIO_REGISTER, &range) == 0;
    (void)!write(ready[1], isSet ? "y" : "n", 1);
    const iovec here{late, sizeof target}, there{target, sizeof target};
    if (isSet) (void)process_vm_writev(parent, &here, 1, &there, 1, 0);
    _exit(0);
  }
  char answer = 0;
  (void)!read(ready[0], &answer, 1);
  ProcessEntry entry{};
  entry.pid = child;
  const Neighbour neighbour(entry, false);
  usleep(100'000);
  EXPECT_TRUE(answer != 'y' || !neighbour.isAtRest(child));
  EXPECT_TRUE(neighbour.isWatchable());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(neighbour.isAtRest(child)) << "it is gone";
  close(ready[0]);
  close(ready[1]);
  if (answer != 'y') GTEST_SKIP() << "no userfaultfd here";
}

}  // namespace
}  // namespace tutti::transport::local::neighbour_test
