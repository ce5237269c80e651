// Groups of which one communicator's calls are captured and another's are not, and graphs of very many different calls.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "conformance/gpu/rank_lives.h"
#include "core/format.h"

namespace tutti::conformance::graphs_groups_test {
namespace {

using driver::cuda::CaptureMode;
using driver::cuda::Error;
using driver::cuda::Graph;
using driver::cuda::Stream;
using faults::kSlow;

/// Two communicators A and B on the same GPUs, of this thread; A is called on streams that are captured, B on others.
class GpuHalfCaptured : public testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kRanks = 2;
  static constexpr size_t kCount = 5000;
  using Comms = std::array<ncclComm_t, kRanks>;
  using Streams = std::array<Stream, kRanks>;
  struct Side {
    Comms comms{};
    Streams streams{};
    std::array<std::unique_ptr<GpuInts>, kRanks> data;
    int value = 1;  ///< of every element
  };

  void SetUp() override {
    order_ = std::make_unique<ScopedSetting>("NCCL_LAUNCH_ORDER_IMPLICIT", GetParam() ? "1" : "0");
    for (Side* side : {&a, &b})
      for (size_t r = 0; r < kRanks; ++r) {
        const UseGpu use(gpus, static_cast<int>(r));
        side->streams[r] = gpus.makeStream();
        side->data[r] = std::make_unique<GpuInts>(kCount);
      }
  }
  void TearDown() override {
    for (Side* side : {&a, &b}) {
      for (const ncclComm_t comm : side->comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
      for (const Stream stream : side->streams) EXPECT_EQ(gpus.driver().streamDestroy(stream), Error::Success);
    }
  }

  void open(bool blocking = true) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    for (Side* side : {&a, &b}) {
      const ncclUniqueId id = RankLives::newId();
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (size_t r = 0; r < kRanks; ++r) {
        const UseGpu use(gpus, static_cast<int>(r));
        ASSERT_EQ(ncclCommInitRankConfig(&side->comms[r], kRanks, id, static_cast<int>(r), &config), ncclSuccess);
      }
      const ncclResult_t ended = ncclGroupEnd();
      ASSERT_TRUE(ended == ncclSuccess || (!blocking && ended == ncclInProgress)) << ncclGetLastError(nullptr);
      settle(*side);
    }
  }
  static void settle(const Side& side) {
    bool isPending = true;
    for (const faults::Stopwatch watch; isPending && watch.seconds() < 10 * kSlow;) {
      isPending = false;
      for (const ncclComm_t comm : side.comms) {
        ncclResult_t state = ncclSuccess;
        EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
        isPending = isPending || state == ncclInProgress;
        ASSERT_TRUE(state == ncclSuccess || state == ncclInProgress) << ncclGetLastError(comm);
      }
    }
    ASSERT_FALSE(isPending);
  }
  void call(const Side& side, const Streams& where) {
    for (size_t r = 0; r < kRanks; ++r) {
      const ncclResult_t called = sum(*side.data[r], kCount, side.comms[r], where[r]);
      ASSERT_TRUE(called == ncclSuccess || called == ncclInProgress) << ncclGetLastError(side.comms[r]);
    }
  }
  static ncclResult_t inGroup(const std::function<void()>& what) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    what();
    return ncclGroupEnd();
  }
  std::array<Graph, kRanks> captured(const std::function<void()>& what) {
    std::array<Graph, kRanks> graphs{};
    for (const Stream s : a.streams) EXPECT_EQ(gpus.driver().beginCapture(s, CaptureMode::Global), Error::Success);
    what();
    for (size_t r = 0; r < kRanks; ++r) EXPECT_EQ(gpus.driver().endCapture(a.streams[r], &graphs[r]), Error::Success);
    return graphs;
  }
  void replay(const std::array<Graph, kRanks>& graphs) {
    for (size_t r = 0; r < kRanks; ++r) ASSERT_EQ(gpus.driver().launchGraph(graphs[r], a.streams[r]), Error::Success);
  }
  void destroyAll(const std::array<Graph, kRanks>& graphs) {
    for (const Graph graph : graphs) EXPECT_EQ(gpus.driver().destroyGraph(graph), Error::Success);
  }
  void expect(const Side& side, const char* when) {
    for (size_t r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, static_cast<int>(r));
      synchronize(gpus, side.streams[r]);
      for (size_t i = 0; i < kCount; i += 97)
        ASSERT_EQ(side.data[r]->data()[i], side.value) << (&side == &a ? "A " : "B ") << when << ", rank " << r;
    }
  }
  /// Calls of both, alone and together, none of them captured.
  void useBoth() {
    for (Side* side : {&a, &b}) {
      const ncclResult_t ended = inGroup([&] { call(*side, side->streams); });
      ASSERT_TRUE(ended == ncclSuccess || ended == ncclInProgress) << ncclGetLastError(nullptr);
      settle(*side);
      side->value *= 2;
      expect(*side, "alone");
    }
    const ncclResult_t ended = inGroup([&] {
      call(b, b.streams);
      call(a, a.streams);
    });
    ASSERT_TRUE(ended == ncclSuccess || ended == ncclInProgress) << ncclGetLastError(nullptr);
    for (Side* side : {&a, &b}) {
      settle(*side);
      side->value *= 2;
      expect(*side, "together");
    }
  }

  FakeGpus gpus{kRanks};
  Side a;
  Side b;

 private:
  std::unique_ptr<ScopedSetting> order_;
};

// Communicators are looked at one by one: what is captured waits for its graph, the rest runs at once.
TEST_P(GpuHalfCaptured, OneCommunicatorIsCapturedAndAnotherRunsAtOnce) {
  for (const bool blocking : {true, false}) {
    open(blocking);
    a.value = b.value = 1;
    for (Side* side : {&a, &b})
      for (size_t r = 0; r < kRanks; ++r)
        for (size_t i = 0; i < kCount; ++i) side->data[r]->data()[i] = 1;
    for (const bool isFirst : {true, false}) {  // also where the group's calls are the first of their communicators
      const auto graphs = captured([&] {
        const ncclResult_t ended = inGroup([&] {
          call(isFirst ? a : b, isFirst ? a.streams : b.streams);
          call(isFirst ? b : a, isFirst ? b.streams : a.streams);
        });
        ASSERT_TRUE(ended == ncclSuccess || (!blocking && ended == ncclInProgress)) << ncclGetLastError(nullptr);
      });
      settle(b);
      b.value *= 2;
      expect(b, "beside a capture");
      expect(a, "is captured and has not run");
      EXPECT_EQ(gpus.driver().shape(graphs[0]).works, 1u) << "of one communicator";
      for (int times = 0; times < 2; ++times) {
        replay(graphs);
        a.value *= 2;
        expect(a, "replayed");
        expect(b, "is not in the graph");
      }
      useBoth();
      destroyAll(graphs);
    }
    if (blocking) {
      for (Side* side : {&a, &b})
        for (const ncclComm_t comm : side->comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
    }
  }
}

// The same where A has a call on a stream outside the capture too: the whole group is refused, B included.
TEST_P(GpuHalfCaptured, AGroupThatIsRefusedLeavesBothUsable) {
  open();
  const auto graphs = captured([&] {
    const ncclResult_t ended = inGroup([&] {
      call(b, b.streams);
      call(a, a.streams);
      call(a, b.streams);
    });
    EXPECT_EQ(ended, ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("captured"), std::string::npos) << ncclGetLastError(nullptr);
  });
  EXPECT_EQ(gpus.driver().shape(graphs[0]).works, 0u);
  expect(b, "has not run");
  useBoth();
  destroyAll(graphs);
}

// A call that one rank captures and the other does not is one call: it is made when the graph is launched.
TEST_P(GpuHalfCaptured, ACallMayBeCapturedOnOneRankAlone) {
  open();
  useBoth();
  ASSERT_EQ(gpus.driver().beginCapture(a.streams[0], CaptureMode::Global), Error::Success);
  ASSERT_EQ(inGroup([&] { call(a, a.streams); }), ncclSuccess) << ncclGetLastError(nullptr);
  Graph graph = nullptr;
  ASSERT_EQ(gpus.driver().endCapture(a.streams[0], &graph), Error::Success);
  {
    const UseGpu use(gpus, 1);
    EXPECT_EQ(gpus.driver().streamQuery(a.streams[1]), Error::NotReady) << "it waits for the graph";
  }
  ASSERT_EQ(gpus.driver().launchGraph(graph, a.streams[0]), Error::Success);
  a.value *= 2;
  expect(a, "graph against call");
  useBoth();
  EXPECT_EQ(gpus.driver().destroyGraph(graph), Error::Success);
}

INSTANTIATE_TEST_SUITE_P(Order, GpuHalfCaptured, testing::Bool(), [](const auto& param) { return param.param ? "Implicit" : "Free"; });

/// Graphs with a thousand calls of a thousand sizes.
class GpuManySizes : public testing::Test {
 protected:
  static constexpr int kRanks = 2;
  static constexpr size_t kCalls = 1000;
  static constexpr size_t kMost = 60'000;  ///< elements: from one cell to many slices

  static size_t countOf(size_t call) { return 1 + call * (kMost - 1) / (kCalls - 1); }
  /// Of tuttiCommGetMemory: what the library has for communicators of the GPU, but what it keeps for others.
  static uint64_t heldBy(ncclComm_t comm) {
    char text[512] = {};
    EXPECT_EQ(tuttiCommGetMemory(comm, text, sizeof text, nullptr), ncclSuccess);
    uint64_t bytes = 0;
    for (const char* const key : {"\"pipes\":", "\"windows\":", "\"boards\":", "\"kernels\":", "\"host\":"}) {
      const char* const at = std::strstr(text, key);
      EXPECT_NE(at, nullptr) << key << ' ' << text;
      if (at != nullptr) bytes += std::strtoull(at + std::strlen(key), nullptr, 10);
    }
    return bytes;
  }
  struct Held {
    std::vector<uint64_t> bytes;
    Level level;
    friend bool operator==(const Held&, const Held&) = default;
  };
  Held held() {
    Held now{{}, lives.level()};
    for (const ncclComm_t comm : comms) now.bytes.push_back(heldBy(comm));
    return now;
  }
  void call(size_t count) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int r = 0; r < kRanks; ++r)
      ASSERT_EQ(ncclAllReduce(lives.data(r).data(), lives.data(r).data(), count, ncclInt, ncclMax, comms[static_cast<size_t>(r)],
                              lives.stream(r)),
                ncclSuccess)
          << ncclGetLastError(nullptr);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  }
  std::vector<Graph> capture(const std::function<void()>& what) {
    std::vector<Graph> graphs(kRanks);
    for (int r = 0; r < kRanks; ++r) EXPECT_EQ(gpus.driver().beginCapture(lives.stream(r)), Error::Success);
    what();
    for (int r = 0; r < kRanks; ++r) EXPECT_EQ(gpus.driver().endCapture(lives.stream(r), &graphs[static_cast<size_t>(r)]), Error::Success);
    return graphs;
  }

  FakeGpus gpus{kRanks};
  RankLives lives{gpus, kRanks, kMost};
  std::array<ncclComm_t, kRanks> comms{};
};

TEST_F(GpuManySizes, TakeNoMemoryAfterTheFirstFew) {
  lives.liveOnce();
  const Level alone = lives.level();
  ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  for (size_t few = 0; few < 16; ++few) {  // all ways that these sizes go
    for (Graph graph : capture([&] { call(countOf(few * (kCalls - 1) / 15)); })) lives.destroy(graph);
  }
  const Held before = held();
  std::vector<std::vector<Graph>> all;
  for (size_t first = 0; first < kCalls; first += 100) {
    all.push_back(capture([&] {
      for (size_t k = first; k < first + 100; ++k) call(countOf(k));
    }));
    Held now = held();
    EXPECT_EQ(now.bytes, before.bytes) << "after " << first + 100 << " calls";
    EXPECT_EQ(now.level.used, before.level.used) << "after " << first + 100 << " calls";
    EXPECT_EQ(now.level.alive.graphs, kRanks * all.size());
    EXPECT_EQ(now.level.alive.userObjects, kRanks * all.size()) << "a mark each";
  }
  for (const size_t which : {size_t{9}, size_t{0}}) {  // the last graph and the first compute
    for (int r = 0; r < kRanks; ++r)
      for (size_t i = 0; i < kMost; ++i) lives.data(r).data()[i] = static_cast<int>(i) + r;
    for (int r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, r);
      lives.replay(all[which][static_cast<size_t>(r)], r);
    }
    const size_t most = countOf(which * 100 + 99);
    for (int r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, r);
      lives.await(r);
      for (size_t i = 0; i < kMost; ++i)
        ASSERT_EQ(lives.data(r).data()[i], static_cast<int>(i) + (i < most ? kRanks - 1 : r)) << "graph " << which << ", element " << i;
    }
  }
  for (const auto& graphs : all)
    for (const Graph graph : graphs) lives.destroy(graph);
  EXPECT_TRUE(held() == before) << gpus.alive();
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  lives.liveOnce();
  EXPECT_EQ(lives.level(), alone) << gpus.alive();
}

}  // namespace
}  // namespace tutti::conformance::graphs_groups_test
