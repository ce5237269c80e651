// Lives of communicators on GPUs: non-blocking ones, more ranks than windows have room for, several ranks on one GPU, GPUs that cannot
// reach each other, streams that go before their communicator.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "conformance/gpu/faults.h"
#include "conformance/harness.h"

namespace tutti::conformance::life_test {
namespace {

using faults::kSlow;

ncclResult_t settle(ncclComm_t comm) { return conformance::settle(comm, 10 * kSlow); }

TEST(GpuLife, NonBlockingRanksSumAndEnd) {
  FakeGpus gpus(2);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&gpus, id, rank] {
      const UseGpu use(gpus, rank);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclComm_t comm = nullptr;
      const ncclResult_t begun = ncclCommInitRankConfig(&comm, 2, id, rank, &config);
      ASSERT_TRUE(begun == ncclSuccess || begun == ncclInProgress);
      ASSERT_EQ(settle(comm), ncclSuccess);
      const GpuInts data(10'000);
      for (int k = 0; k < 3; ++k) {
        const ncclResult_t called = sum(data, 10'000, comm);
        ASSERT_TRUE(called == ncclSuccess || called == ncclInProgress) << ncclGetLastError(comm);
        ASSERT_EQ(settle(comm), ncclSuccess);
      }
      synchronize(gpus);
      for (size_t i = 0; i < 10'000; ++i) ASSERT_EQ(data.data()[i], 8);
      const ncclResult_t ended = ncclCommFinalize(comm);
      ASSERT_TRUE(ended == ncclSuccess || ended == ncclInProgress);
      ASSERT_EQ(settle(comm), ncclSuccess);
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
  for (std::thread& thread : threads) thread.join();
}

// The driver takes a registration of host memory back when all kernels of the process have ended: a rank that destroys one communicator
// would wait for a peer's kernel of another one, which waits for that rank.
TEST(GpuLife, HostPagesGoWithTheLastCommunicator) {
  FakeGpus gpus(2);
  std::vector<ncclComm_t> first(2);
  std::vector<ncclComm_t> second(2);
  ASSERT_EQ(ncclCommInitAll(first.data(), 2, nullptr), ncclSuccess);
  const size_t ofOne = gpus.driver().alive().registered;
  ASSERT_GT(ofOne, 0u);
  ASSERT_EQ(ncclCommInitAll(second.data(), 2, nullptr), ncclSuccess);
  const size_t ofBoth = gpus.driver().alive().registered;
  ASSERT_GT(ofBoth, ofOne);
  for (const ncclComm_t comm : first) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(gpus.driver().alive().registered, ofBoth);
  for (const ncclComm_t comm : second) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(gpus.driver().alive().registered, 0u);
}

TEST(GpuLife, MoreRanksThanWindowsHaveRoomFor) {
  constexpr int kRanks = 11;
  FakeGpus gpus(kRanks);
  RankThreads threads(kRanks, "", [&](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
  threads.run([&](int rank, ncclComm_t comm) {
    for (const size_t count : {size_t{1}, size_t{3000}, size_t{200'000}}) {
      const GpuInts data(count);
      ASSERT_EQ(sum(data, count, comm), ncclSuccess) << ncclGetLastError(comm);
      synchronize(gpus);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(data.data()[i], kRanks);
    }
    const GpuInts all(kRanks * 100);
    for (int i = 0; i < 100; ++i) all.data()[rank * 100 + i] = rank * 100 + i;
    ASSERT_EQ(ncclAllGather(all.data() + rank * 100, all.data(), 100, ncclInt, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
    synchronize(gpus);
    for (int i = 0; i < kRanks * 100; ++i) ASSERT_EQ(all.data()[i], i);
  });
}

TEST(GpuLife, MoreRanksThanPipesHaveRoomForAreRefusedAtOnce) {
  constexpr int kRanks = 17;
  FakeGpus gpus(kRanks);
  std::vector<ncclComm_t> comms(kRanks);
  EXPECT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclInvalidUsage);
  const std::string text = ncclGetLastError(nullptr);
  for (const char* const word : {"17 ranks", "at most 16"}) EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(GpuLife, SixteenRanksMeetOnAllPorts) {
  constexpr int kRanks = 16;
  FakeGpus gpus(kRanks);
  const ScopedSetting narrow("NCCL_MAX_CTAS", "1");
  const ScopedSetting protocol("NCCL_PROTO", "Simple");
  RankThreads threads(kRanks, "", [&](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
  ASSERT_TRUE(threads.created());
  threads.run([&](int rank, ncclComm_t comm) {
    const GpuInts in(kRanks * 10);
    const GpuInts out(kRanks * 10);
    const auto expectExchanged = [&] {
      for (int i = 0; i < kRanks * 10; ++i) ASSERT_EQ(out.data()[i], (i / 10) * 1000 + rank) << i;
    };
    for (int i = 0; i < kRanks * 10; ++i) in.data()[i] = rank * 1000 + i / 10;
    ASSERT_EQ(ncclAlltoAll(in.data(), out.data(), 10, ncclInt, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
    synchronize(gpus);
    expectExchanged();
    for (int i = 0; i < kRanks * 10; ++i) out.data()[i] = 0;
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int peer = 0; peer < kRanks; ++peer) {
      ASSERT_EQ(ncclSend(in.data() + peer * 10, 10, ncclInt, peer, comm, nullptr), ncclSuccess);
      ASSERT_EQ(ncclRecv(out.data() + peer * 10, 10, ncclInt, peer, comm, nullptr), ncclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(comm);
    synchronize(gpus);
    expectExchanged();
    for (const size_t count : {size_t{1}, size_t{10'000}}) {
      const GpuInts data(count);
      ASSERT_EQ(sum(data, count, comm), ncclSuccess) << ncclGetLastError(comm);
      synchronize(gpus);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(data.data()[i], kRanks);
    }
  });
}

/// Of tuttiCommGetMemory: all that the library has on the GPU, but what the user allocated.
uint64_t ownBytes(ncclComm_t comm) {
  char text[512] = {};
  EXPECT_EQ(tuttiCommGetMemory(comm, text, sizeof text, nullptr), ncclSuccess);
  uint64_t bytes = 0;
  for (const char* const key : {"\"pipes\":", "\"windows\":", "\"boards\":", "\"kernels\":", "\"idle\":"}) {
    const char* const at = std::strstr(text, key);
    EXPECT_NE(at, nullptr) << key << ' ' << text;
    if (at != nullptr) bytes += std::strtoull(at + std::strlen(key), nullptr, 10);
  }
  return bytes;
}

// Four GPUs may take 32 MB after an all-reduce and an all-to-all; here with units of 2 MiB, as GPUs have them.
TEST(GpuLife, FourRanksTakeLessThan32MB) {
  constexpr int kRanks = 4;
  constexpr size_t kMost = 12 << 20;
  FakeGpus gpus(kRanks);
  RankThreads threads(kRanks, "", [&](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
  ASSERT_TRUE(threads.created());
  threads.run([&](int, ncclComm_t comm) {
    const GpuInts in(kMost);
    const GpuInts out(kMost);
    for (const size_t count : {size_t{2}, kMost}) {
      ASSERT_EQ(sum(in, count, comm), ncclSuccess) << ncclGetLastError(comm);
      ASSERT_EQ(ncclAlltoAll(in.data(), out.data(), count / kRanks, ncclInt, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
      synchronize(gpus);
    }
    EXPECT_EQ(ownBytes(comm), uint64_t{26} << 20);
  });
}

TEST(GpuLife, SeveralRanksOnOneGpu) {
  const ScopedSetting several("TUTTI_MULTI_RANK_GPU", "1");
  FakeGpus gpus(2);
  constexpr int kRanks = 4;
  RankThreads threads(kRanks, "", [&](int rank) { return std::make_shared<UseGpu>(gpus, rank % 2); });
  ASSERT_TRUE(threads.created());
  threads.run([&](int, ncclComm_t comm) {
    const cudaStream_t stream = gpus.makeStream();
    for (const size_t count : {size_t{5}, size_t{100'000}}) {
      const GpuInts data(count);
      ASSERT_EQ(sum(data, count, comm, stream), ncclSuccess) << ncclGetLastError(comm);
      synchronize(gpus, stream);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(data.data()[i], kRanks);
    }
    gpus.driver().streamDestroy(stream);
  });
}

TEST(GpuLife, AStreamMayGoBeforeItsCommunicator) {
  FakeGpus gpus(2);
  RankThreads threads(2, "", [&](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
  threads.run([&](int, ncclComm_t comm) {
    const GpuInts data(50'000);
    for (int k = 0; k < 4; ++k) {
      const cudaStream_t stream = gpus.makeStream();
      ASSERT_EQ(sum(data, 50'000, comm, stream), ncclSuccess) << ncclGetLastError(comm);
      gpus.driver().streamDestroy(stream);  // its work goes on
    }
    ASSERT_EQ(sum(data, 50'000, comm), ncclSuccess) << ncclGetLastError(comm);
    synchronize(gpus);
    for (size_t i = 0; i < 50'000; ++i) ASSERT_EQ(data.data()[i], 32);
  });
}

TEST(GpuLife, ChildrenShareAndShrink) {
  FakeGpus gpus(3);
  RankThreads threads(3, "", [&](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
  threads.run([&](int rank, ncclComm_t comm) {
    const GpuInts data(1000);
    ASSERT_EQ(sum(data, 1000, comm), ncclSuccess);
    if (rank != 1) {
      int without[] = {1};
      ncclComm_t pair = nullptr;
      ASSERT_EQ(ncclCommShrink(comm, without, 1, &pair, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess) << ncclGetLastError(comm);
      ASSERT_EQ(sum(data, 1000, pair), ncclSuccess) << ncclGetLastError(pair);
      synchronize(gpus);
      EXPECT_EQ(data.data()[999], 6);
      EXPECT_EQ(ncclCommDestroy(pair), ncclSuccess);
    }
    synchronize(gpus);
    threads.meet();
  });
}

}  // namespace
}  // namespace tutti::conformance::life_test
