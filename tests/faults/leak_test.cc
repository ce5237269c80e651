// A thousand lives of everything that can be made and ended: file descriptors, threads and memory stay where they were.
#include <dirent.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "conformance/harness.h"

namespace tutti::conformance::leak_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kLives = 1000;
#if defined(TUTTI_SANITIZED)
constexpr int64_t kMostGrowthKiB = 64 << 10;
#else
constexpr int64_t kMostGrowthKiB = 2048;
#endif

int64_t entries(const char* folder) {
  DIR* dir = opendir(folder);
  int64_t n = 0;
  while (readdir(dir) != nullptr) ++n;
  closedir(dir);
  return n;
}

int64_t statusKiB(const char* key) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  char line[256];
  long long value = -1;
  while (std::fgets(line, sizeof line, file) != nullptr)
    if (std::strncmp(line, key, std::strlen(key)) == 0) std::sscanf(line + std::strlen(key), ": %lld", &value);
  std::fclose(file);
  return value;
}

struct Usage {
  int64_t files = entries("/proc/self/fd");
  int64_t threads = entries("/proc/self/task");
  int64_t residentKiB = statusKiB("VmRSS");
  int64_t virtualKiB = statusKiB("VmSize");
};

/// Once nothing changes any more: a joined thread takes a moment to leave /proc, and the thread of the bootstrap lingers a little.
Usage settled() {
  Usage usage;
  for (int still = 0, tries = 0; still < 25 && tries < 300; ++still, ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const Usage now;
    if (now.threads != usage.threads || now.files != usage.files) still = 0;
    usage = now;
  }
  return usage;
}

/// A tenth of the lives warm up the allocator, caches and whatever is made once; the rest must cost nothing.
void expectNoGrowth(const char* what, const std::function<void()>& live) {
  for (int i = 0; i < kLives / 10; ++i) live();
  Usage before = settled();
  live();
  const Usage again = settled();  // on a busy machine a thread that ends may take long
  before.threads = std::min(before.threads, again.threads);
  before.files = std::min(before.files, again.files);
  for (int i = 0; i < kLives; ++i) {
    live();
    if (testing::Test::HasFailure()) FAIL() << what << ", life " << i << ": " << ncclGetLastError(nullptr);
  }
  const Usage after = settled();
  EXPECT_LE(after.files, before.files) << what;
  EXPECT_LE(after.threads, before.threads) << what;
  EXPECT_LE(after.residentKiB - before.residentKiB, kMostGrowthKiB) << what << ": resident memory, KiB";
  EXPECT_LE(after.virtualKiB - before.virtualKiB, 8 * kMostGrowthKiB) << what << ": address space, KiB";
}

TEST(Leak, TwoRanksAsThreads) {
  expectNoGrowth("two ranks as threads", [] {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ok);
    const auto rank = [id](int r) {
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, 2, id, r), ok);
      std::vector<float> x(3000, 1);
      EXPECT_EQ(ncclAllReduce(x.data(), x.data(), 1, ncclFloat, ncclSum, comm, nullptr), ok);
      EXPECT_EQ(ncclAllReduce(x.data(), x.data(), 3000, ncclFloat, ncclSum, comm, nullptr), ok);
      EXPECT_EQ(ncclCommDestroy(comm), ok);
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
  });
}

TEST(Leak, FourRanksByOneThreadWithEveryKindOfCall) {
  expectNoGrowth("four ranks by one thread", [] {
    ncclComm_t comms[4];
    ASSERT_EQ(ncclCommInitAll(comms, 4, nullptr), ok);
    int in[4] = {1, 2, 3, 4}, all[4][16] = {};
    ASSERT_EQ(ncclGroupStart(), ok);
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(ncclAllGather(&in[r], all[r], 1, ncclInt, comms[r], nullptr), ok);
      EXPECT_EQ(ncclSend(&in[r], 1, ncclInt, (r + 1) % 4, comms[r], nullptr), ok);
      EXPECT_EQ(ncclRecv(&all[r][8], 1, ncclInt, (r + 3) % 4, comms[r], nullptr), ok);
      EXPECT_EQ(ncclReduce(&in[r], &all[r][9], 1, ncclInt, ncclMax, 2, comms[r], nullptr), ok);
    }
    ASSERT_EQ(ncclGroupEnd(), ok);
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
}

TEST(Leak, AbortedCommunicators) {
  expectNoGrowth("aborted communicators", [] {
    ncclComm_t comms[2];
    ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ok);
  });
}

TEST(Leak, RefusedCreations) {
  expectNoGrowth("creations that fail", [] {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ok);
    ncclComm_t comms[2] = {};
    ASSERT_EQ(ncclGroupStart(), ok);
    (void)ncclCommInitRank(&comms[0], 2, id, 0);
    (void)ncclCommInitRank(&comms[1], 2, id, 0);
    EXPECT_NE(ncclGroupEnd(), ok);
  });
}

TEST(Leak, HostStreams) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ok);
  expectNoGrowth("host streams", [comm] {
    cudaStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), ok);
    int x = 1;
    EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comm, stream), ok);
    EXPECT_EQ(tuttiStreamSynchronize(stream), ok);
    EXPECT_EQ(tuttiStreamDestroy(stream), ok);
  });
  EXPECT_EQ(ncclCommDestroy(comm), ok);
}

TEST(Leak, Memory) {
  expectNoGrowth("ncclMemAlloc", [] {
    void* pointer = nullptr;
    ASSERT_EQ(ncclMemAlloc(&pointer, 100000), ok);
    std::memset(pointer, 1, 100000);
    EXPECT_EQ(ncclMemFree(pointer), ok);
  });
}

TEST(Leak, UnusedUniqueIds) {
  expectNoGrowth("unused unique ids", [] {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ok);
  });
}

// Operators, and shapes that no cache may collect without bound, on one long-lived communicator.
TEST(Leak, OperatorsAndShapesOfALongLife) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ok);
  std::vector<float> x(100000), y(100000);
  size_t count = 0;
  expectNoGrowth("operators and shapes", [&] {
    ncclRedOp_t op;
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &x[0], ncclFloat, ncclScalarHostImmediate, comm), ok);
      EXPECT_EQ(ncclRedOpDestroy(op, comm), ok);
    }
    count = count % x.size() + 1;
    EXPECT_EQ(ncclAllReduce(x.data(), y.data(), count, ncclFloat, ncclSum, comm, nullptr), ok);
  });
  EXPECT_EQ(ncclCommDestroy(comm), ok);
}

}  // namespace
}  // namespace tutti::conformance::leak_test
