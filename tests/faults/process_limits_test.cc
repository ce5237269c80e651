// Processes that lack something: descriptors, the right to look into each other, /dev/shm, large files, system calls. They work, or say
// what is wrong.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "faults/process_ranks.h"

namespace tutti::faults::process_limits_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kRanks = 3;
using Self = ProcessRanks::Self;

std::string lastError() { return ncclGetLastError(nullptr); }

void limit(int resource, rlim_t value) {
  rlimit now{};
  getrlimit(static_cast<__rlimit_resource>(resource), &now);
  now.rlim_cur = value;
  EXPECT_EQ(setrlimit(static_cast<__rlimit_resource>(resource), &now), 0);
}

/// Calls of every size, from ordinary memory and from ncclMemAlloc, a split, and the end.
void live(Self& self, ncclComm_t comm) {
  for (const size_t count : {1ul, 3000ul, 1000000ul}) EXPECT_EQ(sumOnce(comm, kRanks, count), ok) << lastError();
  constexpr size_t kCount = 500000;
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, kCount * kRanks * sizeof(int)), ok) << lastError();
  int* values = static_cast<int*>(memory);
  for (int round = 0; round < 3; ++round) {
    std::fill(values, values + kCount * kRanks, self.index() + round);
    const int* own = values + kCount * static_cast<size_t>(self.index());
    ASSERT_EQ(ncclAllGather(own, values, kCount, ncclInt, comm, nullptr), ok) << lastError();
    for (int r = 0; r < kRanks; ++r) {
      const int* part = values + kCount * static_cast<size_t>(r);
      EXPECT_EQ(std::count(part, part + kCount, r + round), static_cast<ptrdiff_t>(kCount)) << "of rank " << r;
    }
  }
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclCommSplit(comm, 0, -self.index(), &child, nullptr), ok) << lastError();
  EXPECT_EQ(sumOnce(child, kRanks, 100000), ok) << lastError();
  EXPECT_EQ(ncclCommDestroy(child), ok);
  EXPECT_EQ(ncclMemFree(memory), ok);
  EXPECT_EQ(ncclCommDestroy(comm), ok);
}

void liveWith(const std::function<void(Self&)>& want) {
  ProcessRanks children(kRanks, [&](Self& self) {
    want(self);
    live(self, joinAll(self));
  });
  children.expectAllWell();
}

TEST(ProcessLimits, NothingIsLacking) {
  liveWith([](Self&) {});
}
TEST(ProcessLimits, CopiesBySystemCall) {
  liveWith([](Self&) { setenv("TUTTI_CMA", "1", 1); });
}

/// Nobody may open what another has open, nor read its memory: as between users, or in a hardened container. Root may all the same,
/// so that the ranks become nobody first.
TEST(ProcessLimits, ProcessesThatMayNotLookIntoEachOther) {
  for (const char* copies : {"0", "1"}) {
    liveWith([copies](Self& self) {
      setenv("TUTTI_CMA", copies, 1);
      if (geteuid() == 0) {
        EXPECT_EQ(setresgid(65534, 65534, 65534), 0);
        EXPECT_EQ(setresuid(65534, 65534, 65534), 0);
      }
      if (self.index() != 1) prctl(PR_SET_DUMPABLE, 0);
    });
  }
}

/// The first process makes the file; the others' limits are about files that they make.
TEST(ProcessLimits, SmallFilesOfAnyProcess) {
  for (const int limited : {0, 1}) {
    liveWith([limited](Self& self) {
      if (self.index() == limited) limit(RLIMIT_FSIZE, rlim_t{1} << 30);
    });
  }
}

TEST(ProcessLimits, FilesTooSmallForAnything) {
  ProcessRanks children(kRanks, [](Self& self) {
    std::fflush(stdout);
    signal(SIGXFSZ, SIG_IGN);  // for what this test prints; nothing else may grow a file that far
    limit(RLIMIT_FSIZE, 64 << 10);
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRank(&comm, kRanks, self.id(), self.index());
    // The others may hear first that the process of the id's root has gone.
    if (self.index() != 0 && result == ncclRemoteError) return;
    EXPECT_EQ(result, ncclSystemError) << lastError();
    EXPECT_NE(lastError().find("RLIMIT_FSIZE"), std::string::npos) << lastError();
  });
  children.expectAllWell({}, 10);
}

/// Not where a filter of the container forbids it; and the thread sanitizer knows one table of descriptors only.
bool threadsMayHaveOwnDescriptors() {
#if defined(__SANITIZE_THREAD__)
  return false;
#endif
  ProcessRanks probe(1, [](Self& self) { self.note(0, unshare(CLONE_FILES)); });
  probe.expectAllWell();
  return probe.number(0, 0) == 0;
}

/// Too few descriptors: an error in words on every rank, never a wait without end; with enough it works. In between the bootstrap waits for
/// a descriptor as long as its own limit for a set-up (30 s): with TUTTI_TEST_FULL=1 alone.
TEST(ProcessLimits, FewDescriptors) {
  const int last = std::getenv("TUTTI_TEST_FULL") != nullptr ? 20 : 7;
  const bool areTold = threadsMayHaveOwnDescriptors();
  bool worked = false;
  for (int most = 3; !worked; most = most < last ? most + 1 : 24) {
    ProcessRanks children(kRanks, [most](Self& self) {
      const ncclUniqueId id = self.id();
      if (self.index() == 1) limit(RLIMIT_NOFILE, static_cast<rlim_t>(most));
      ncclComm_t comm = nullptr;
      const ncclResult_t result = ncclCommInitRank(&comm, kRanks, id, self.index());
      if (result == ok) {
        EXPECT_EQ(sumOnce(comm, kRanks, 100000), ok) << lastError();
        EXPECT_EQ(ncclCommDestroy(comm), ok);
        self.note(0, 1);
        return;
      }
      EXPECT_TRUE(result == ncclSystemError || result == ncclRemoteError) << result << " " << lastError();
      EXPECT_FALSE(lastError().empty());
    });
    const Ended& starved = children.end(1, most > 7 ? 40 : 10);
    EXPECT_TRUE(starved.byItself && starved.code == 0) << most << " descriptors:\n" << starved.text;
    worked = children.number(1, 0) == 1;
    // Room for what it has to say is made of what it has open besides standard input and output: with three there is none.
    if (worked || (areTold && most >= 7)) children.expectAllWell({}, 40);
    EXPECT_TRUE(worked || most < 24) << "24 descriptors are enough";
    if (testing::Test::HasFailure()) return;
  }
}

/// A program that has opened as many files as it may, but for `spare` of them.
class UsedUp {
 public:
  explicit UsedUp(int spare = 0) {
    limit(RLIMIT_NOFILE, 64);
    take();
    for (int s = 0; s < spare; ++s, files_.pop_back()) close(files_.back());
  }
  void take() {
    for (int file = dup(0); file >= 0; file = dup(0)) files_.push_back(file);
  }
  void giveBack() {
    for (const int file : files_) EXPECT_EQ(close(file), 0) << "somebody else has closed it";
    files_.clear();
  }

 private:
  std::vector<int> files_;
};

/// A program that has opened as many files as it may: all ranks are told which one that is, at once, and its files stay open.
TEST(ProcessLimits, ARankWhoseProgramHasUsedUpTheDescriptorsTellsTheOthers) {
  if (!threadsMayHaveOwnDescriptors()) GTEST_SKIP() << "the others wait here as for a rank that is late";
  for (const int spare : {0, 2, 4}) {
    ProcessRanks children(kRanks, [spare](Self& self) {
      const ncclUniqueId id = self.id();
      std::optional<UsedUp> used;
      if (self.index() == 1) used.emplace(spare);
      const Stopwatch watch;
      ncclComm_t comm = nullptr;
      const ncclResult_t result = ncclCommInitRank(&comm, kRanks, id, self.index());
      EXPECT_LT(watch.seconds(), 10 * kPromptSeconds) << spare;
      EXPECT_EQ(result, ncclSystemError) << spare;
      EXPECT_NE(lastError().find("Too many open files"), std::string::npos) << spare << ": " << lastError();
      EXPECT_TRUE(self.index() == 1 || lastError().find("rank 1 (process ") != std::string::npos) << spare << ": " << lastError();
      if (used) used->giveBack();
    });
    children.expectAllWell();
    if (testing::Test::HasFailure()) return;
  }
}

/// The process whose id the others come to is the one, alone or like all of them: who knocks is let in on a descriptor kept in reserve.
TEST(ProcessLimits, ARootWhoseProgramHasUsedUpTheDescriptorsTellsTheOthers) {
  for (const bool areAllSo : {false, true}) {
    if (areAllSo && !threadsMayHaveOwnDescriptors()) continue;
    ProcessRanks children(kRanks, [areAllSo](Self& self) {
      const ncclUniqueId id = self.id();
      std::optional<UsedUp> used;
      if (areAllSo || self.index() == 0) used.emplace();
      const Stopwatch watch;
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRank(&comm, kRanks, id, self.index()), ncclSystemError) << areAllSo;
      EXPECT_LT(watch.seconds(), 10 * kPromptSeconds) << areAllSo;
      EXPECT_NE(lastError().find("Too many open files"), std::string::npos) << lastError();
      EXPECT_TRUE(areAllSo || lastError().find("a process whose descriptors are used up (process ") != std::string::npos) << lastError();
      if (used) used->giveBack();
    });
    children.expectAllWell();
    if (testing::Test::HasFailure()) return;
  }
}

/// What nobody has come for goes on, and the next lack is known as soon as the first.
TEST(ProcessLimits, ARootWithoutDescriptorsEndsWhatSomebodyHasComeForAlone) {
  ProcessRanks children(2, [](Self& self) {
    const ncclUniqueId first = self.id(0), second = self.id(1), ahead = self.id(2);
    std::optional<UsedUp> used;
    if (self.index() == 0) used.emplace();
    for (const ncclUniqueId& id : {first, second}) {
      const Stopwatch watch;
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRank(&comm, 2, id, self.index()), ncclSystemError);
      EXPECT_LT(watch.seconds(), 10 * kPromptSeconds);
      EXPECT_NE(lastError().find("Too many open files"), std::string::npos) << lastError();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (used) used->take();  // what the others' connection had, too
      const bool isFirst = std::memcmp(&id, &first, sizeof id) == 0;
      self.reach(isFirst ? 1 : 2);
      self.awaitStage(1 - self.index(), isFirst ? 1 : 2);
    }
    if (used) used->giveBack();
    self.reach(3);
    self.awaitStage(0, 3);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, 2, ahead, self.index()), ok) << lastError();
    EXPECT_EQ(sumOnce(comm, 2, 1000), ok);
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
}

/// The process of the second id has no rank, and no descriptor: the ranks of the first block wait for those of the second.
TEST(ProcessLimits, ARootWithoutRanksWhoseDescriptorsAreUsedUpIsHeardOfInAllBlocks) {
  constexpr int kAll = 4, kMaker = 4;
  ProcessRanks children(kAll + 1, [](Self& self) {
    ncclUniqueId ids[] = {self.id(0, 0), self.id(1, kMaker)};
    if (self.index() == kMaker) {
      UsedUp used;
      self.reach(1);
      for (int rank = 0; rank < kAll; ++rank) self.awaitStage(rank, 2);
      return used.giveBack();
    }
    self.awaitStage(kMaker, 1);
    const Stopwatch watch;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankScalable(&comm, kAll, self.index(), 2, ids, nullptr), ncclSystemError);
    EXPECT_LT(watch.seconds(), 10 * kPromptSeconds);
    EXPECT_NE(lastError().find("descriptors are used up"), std::string::npos) << lastError();
    self.reach(2);
  });
  children.expectAllWell();
}

/// A program may end as soon as it has its error: the process of the second id is gone, and who has found that out ends.
TEST(ProcessLimits, WhoEndsWithItsErrorHasToldTheOthers) {
  constexpr int kAll = 3, kMaker = 3;
  ProcessRanks children(kAll + 1, [](Self& self) {
    setenv("NCCL_SOCKET_RETRY_CNT", "1", 1);
    ncclUniqueId ids[] = {self.id(0, 0), self.id(1, kMaker)};
    if (self.index() == kMaker) _exit(0);
    if (self.index() == 0) self.reach(1);
    self.awaitAllowed(1);
    const Stopwatch watch;
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRankScalable(&comm, kAll, self.index(), 2, ids, nullptr);
    if (self.index() == 2) _exit(result == ncclRemoteError ? 0 : 1);
    EXPECT_EQ(result, ncclRemoteError) << lastError();
    EXPECT_LT(watch.seconds(), 10 * kPromptSeconds);
    EXPECT_NE(lastError().find("cannot reach the root of the unique id"), std::string::npos) << lastError();
  });
  ASSERT_TRUE(children.awaitStage(0, 1));
  children.signal(0, SIGSTOP);  // the first root hears nothing for a while
  children.allow(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  children.signal(0, SIGCONT);
  children.expectAllWell();
}

/// No thread is to be had, which a user other than root may be told: it is said from the one that asks.
TEST(ProcessLimits, ARankThatGetsNoThreadTellsTheOthers) {
  if (getuid() != 0) GTEST_SKIP() << "takes root, to become a user who has a limit";
  constexpr uid_t kUser = 54321;
  ProcessRanks children(kRanks, [](Self& self) {
    const ncclUniqueId id = self.id();
    if (self.index() == 1) {
      limit(RLIMIT_NPROC, 1);
      ASSERT_EQ(setresuid(kUser, kUser, kUser), 0);
    }
    const Stopwatch watch;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, kRanks, id, self.index()), ncclSystemError);
    EXPECT_LT(watch.seconds(), 10 * kPromptSeconds);
    EXPECT_TRUE(self.index() == 1 || lastError().find("rank 1 (process ") != std::string::npos) << lastError();
    EXPECT_NE(lastError().find("thread"), std::string::npos) << lastError();
  });
  children.expectAllWell();
}

/// From now on the process finds memory for small things alone: less than the pipes of a call take, the least of which are 1 MiB.
void leaveNoMemory() {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  ASSERT_GT(pages, 0);
  limit(RLIMIT_AS, static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + 900000);
}

/// One rank has no memory for what a call takes, once all have met: the call says so there, all others hear it, on one host and on several.
TEST(ProcessLimits, ACallThatFindsNoMemoryTellsTheOthers) {
#if defined(TUTTI_SANITIZED)
  GTEST_SKIP() << "sanitizers map memory of their own";
#endif
  for (const bool onHosts : {false, true}) {
    ProcessRanks children(kRanks, [onHosts](Self& self) {
      if (onHosts) setenv("NCCL_HOSTID", std::to_string(self.index()).c_str(), 1);
      ncclComm_t comm = joinAll(self);
      std::vector<int> values(1 << 20, 1);  // before its memory ends
      const bool lacks = self.index() == 1;
      if (lacks) leaveNoMemory();
      const Stopwatch watch;
      EXPECT_EQ(ncclAllReduce(values.data(), values.data(), values.size(), ncclInt, ncclSum, comm, nullptr),
                lacks ? ncclSystemError : ncclRemoteError)
          << lastError();
      EXPECT_LT(watch.seconds(), kPromptSeconds);
      EXPECT_NE(lastError().find("Cannot allocate memory"), std::string::npos) << lastError();
      EXPECT_TRUE(lacks || lastError().find("rank 1 ") != std::string::npos) << lastError();
      EXPECT_NE(verdictOf(comm).find("\"suspects\":[{\"rank\":1,"), std::string::npos) << verdictOf(comm);
      // From then on it is the communicator's own error.
      ncclResult_t state = ok;
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ok);
      EXPECT_EQ(state, lacks ? ncclSystemError : ncclRemoteError);
      EXPECT_EQ(ncclAllReduce(values.data(), values.data(), 1, ncclInt, ncclSum, comm, nullptr), state) << lastError();
      abortPromptly(comm);
    });
    children.expectAllWell();
    if (testing::Test::HasFailure()) return;
  }
}

/// What a caller does wrong in a group is refused, whatever its code: the communicators go on.
TEST(ProcessLimits, AGroupWithAMistakeTellsNobody) {
  ProcessRanks children(kRanks, [](Self& self) {
    ncclComm_t comm = joinAll(self);
    if (self.index() == 1) {
      int value = 1;
      EXPECT_EQ(ncclGroupStart(), ok);
      EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr), ok) << lastError();
      EXPECT_EQ(ncclMemAlloc(nullptr, 1), ncclUnhandledCudaError);
      EXPECT_EQ(ncclGroupEnd(), ncclUnhandledCudaError);
    }
    EXPECT_EQ(sumOnce(comm, kRanks), ok) << lastError();
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
}

/// A group that is not launched for what one of its calls lacks is one that the peers of all its communicators wait for.
TEST(ProcessLimits, AGroupThatFindsNoMemoryTellsAllItsPeers) {
#if defined(TUTTI_SANITIZED)
  GTEST_SKIP() << "sanitizers map memory of their own";
#endif
  ProcessRanks children(kRanks, [](Self& self) {
    const bool lacks = self.index() == 1;
    ncclComm_t comms[] = {joinAll(self, 0), joinAll(self, 1), joinAll(self, 2)};
    EXPECT_EQ(sumOnce(comms[0], kRanks), ok) << lastError();  // what a small call takes is there in one of them
    std::vector<int> values(1 << 20, 1);
    self.meet(1);  // all have made that call
    if (lacks) leaveNoMemory();
    const auto sum = [&](int which, size_t count) {
      return ncclAllReduce(values.data(), values.data(), count, ncclInt, ncclSum, comms[which], nullptr);
    };
    const Stopwatch watch;
    if (lacks) {
      EXPECT_EQ(ncclGroupStart(), ok);
      EXPECT_EQ(sum(0, 1000), ok) << lastError();
      EXPECT_EQ(sum(1, values.size()), ncclSystemError);
      EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
    } else {
      EXPECT_EQ(sum(0, 1000), ncclRemoteError) << lastError();
      EXPECT_NE(lastError().find("another call of the same group failed"), std::string::npos) << lastError();
      EXPECT_EQ(sum(1, values.size()), ncclRemoteError) << lastError();
    }
    EXPECT_LT(watch.seconds(), kPromptSeconds);
    ncclResult_t untouched = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(comms[2], &untouched), ok);
    EXPECT_EQ(untouched, ok);
    self.meet(2);  // before anybody aborts it
    for (ncclComm_t comm : comms) abortPromptly(comm);
  });
  children.expectAllWell();
}

/// What `hide` does to the folders of a mount namespace of its own, ranks live in it; skipped without root.
void liveWhere(const std::function<bool()>& hide) {
  ProcessRanks warden(1, [&](Self& self) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || !hide()) return self.note(0, 1);
    liveWith([](Self&) {});
  });
  warden.expectAllWell();
  if (warden.number(0, 0) == 1) GTEST_SKIP() << "a mount namespace takes root";
}

TEST(ProcessLimits, NothingMayBeMadeInTheSharedFolder) {
  liveWhere([] { return mount("tmpfs", "/dev/shm", "tmpfs", MS_RDONLY, "size=4096") == 0; });
}

TEST(ProcessLimits, TheSharedFolderIsFull) {
  liveWhere([] {
    if (mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=65536") != 0) return false;
    const int fd = open("/dev/shm/full", O_CREAT | O_WRONLY, 0600);
    const std::vector<char> block(4096, 'x');
    int blocks = 0;
    while (write(fd, block.data(), block.size()) == static_cast<ssize_t>(block.size())) ++blocks;
    const bool isFull = errno == ENOSPC && blocks > 0;
    close(fd);
    return isFull;
  });
}

/// Nor anything else of /dev.
TEST(ProcessLimits, ThereIsNoSharedFolder) {
  liveWhere([] { return mount("tmpfs", "/dev", "tmpfs", MS_RDONLY, "size=65536") == 0 && access("/dev/shm", F_OK) != 0; });
}

/// From now on the process and its children get EPERM from this system call.
bool forbid(uint32_t call) {
  const sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), const_cast<sock_filter*>(program)};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// As containers have one by default: no thread has a table of descriptors of its own, so who lacks descriptors says it from a process.
TEST(ProcessLimits, FewDescriptorsUnderAFilter) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers know no process on another one's memory";
#endif
  ProcessRanks children(kRanks, [](Self& self) {
    const ncclUniqueId id = self.id();
    std::vector<int> open;
    if (self.index() == 1) {
      ASSERT_TRUE(forbid(SYS_unshare));
      limit(RLIMIT_NOFILE, 64);
      for (int fd = dup(0); fd >= 0; fd = dup(0)) open.push_back(fd);
    }
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRank(&comm, kRanks, id, self.index());
    EXPECT_EQ(result, ncclSystemError) << lastError();
    if (self.index() == 1) {
      for (const int fd : open) EXPECT_EQ(close(fd), 0) << "what the program has open stays open";
      EXPECT_TRUE(waitpid(-1, nullptr, __WALL) < 0 && errno == ECHILD) << "no process is left";
    } else {
      EXPECT_NE(lastError().find("rank 1"), std::string::npos) << lastError();
    }
  });
  children.expectAllWell({}, 10);
}

/// A sandbox that forbids reading other processes' memory by a system call: copies go through shared memory.
TEST(ProcessLimits, NoReadsOfOtherProcessesMemory) {
  for (const char* copies : {"0", "1"}) {
    liveWith([copies](Self&) {
      setenv("TUTTI_CMA", copies, 1);
      EXPECT_TRUE(forbid(SYS_process_vm_readv));
    });
  }
}

/// One that forbids memory without a name: it is said, to all, at once.
TEST(ProcessLimits, NoMemoryWithoutAName) {
  ProcessRanks children(kRanks, [](Self& self) {
    EXPECT_TRUE(forbid(SYS_memfd_create));
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRank(&comm, kRanks, self.id(), self.index());
    EXPECT_TRUE(result == ncclSystemError || result == ncclRemoteError) << result << " " << lastError();
    EXPECT_NE(lastError().find("memfd_create"), std::string::npos) << lastError();
    void* memory = nullptr;
    EXPECT_EQ(ncclMemAlloc(&memory, 1 << 20), ncclSystemError);
    EXPECT_NE(lastError().find("memfd_create"), std::string::npos) << lastError();
    // Ranks of one process need none.
    int devices[] = {0, 1};
    ncclComm_t own[2] = {};
    ASSERT_EQ(ncclCommInitAll(own, 2, devices), ok) << lastError();
    for (ncclComm_t one : own) EXPECT_EQ(ncclCommDestroy(one), ok);
  });
  children.expectAllWell({}, 10);
}

}  // namespace
}  // namespace tutti::faults::process_limits_test
