// Captured calls: what graphs compute, how they stand among other calls, and what is left when graphs and communicators go in any order.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "comm/process.h"
#include "conformance/gpu/faults.h"
#include "core/format.h"

namespace tutti::conformance::graphs_test {
namespace {

using driver::cuda::CaptureMode;
using driver::cuda::Error;
using driver::cuda::Event;
using driver::cuda::Graph;
using driver::cuda::Stream;
using faults::kSlow;

/// Ranks of this thread, each with a stream of its own, and the graphs that they capture together.
class GpuGraphs : public testing::Test {
 protected:
  static constexpr size_t kRanks = 2;

  void SetUp() override {
    for (size_t r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, static_cast<int>(r));
      streams.push_back(gpus.makeStream());
      data.push_back(std::make_unique<GpuInts>(kCount));
    }
    comms = create();
  }
  void TearDown() override {
    destroy(comms);
    data.clear();
    for (size_t r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, static_cast<int>(r));
      EXPECT_EQ(gpus.driver().streamDestroy(streams[r]), Error::Success);
    }
  }

  std::vector<ncclComm_t> create() {
    std::vector<ncclComm_t> made(kRanks);
    EXPECT_EQ(ncclCommInitAll(made.data(), kRanks, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
    return made;
  }
  static void destroy(std::vector<ncclComm_t>& which) {
    for (const ncclComm_t comm : which) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
    which.clear();
  }

  /// Doubles everything, as all ranks have the same.
  ncclResult_t sumAll(const std::vector<ncclComm_t>& on, const std::vector<Stream>& where, size_t count = kCount) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t r = 0; r < kRanks; ++r) EXPECT_EQ(sum(*data[r], count, on[r], where[r]), ncclSuccess) << ncclGetLastError(on[r]);
    return ncclGroupEnd();
  }
  void begin(CaptureMode mode = CaptureMode::Global) {
    for (const Stream s : streams) ASSERT_EQ(gpus.driver().beginCapture(s, mode), Error::Success);
  }
  std::vector<Graph> end() {
    std::vector<Graph> graphs(kRanks);
    for (size_t r = 0; r < kRanks; ++r) EXPECT_EQ(gpus.driver().endCapture(streams[r], &graphs[r]), Error::Success) << "rank " << r;
    return graphs;
  }
  std::vector<Graph> captured(const std::function<void()>& what, CaptureMode mode = CaptureMode::Global) {
    begin(mode);
    what();
    return end();
  }
  void replay(const std::vector<Graph>& graphs, const std::vector<Stream>& where) {
    for (size_t r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, static_cast<int>(r));
      ASSERT_EQ(gpus.driver().launchGraph(graphs[r], where[r]), Error::Success);
    }
  }
  void destroyAll(const std::vector<Graph>& graphs) {
    for (const Graph graph : graphs) EXPECT_EQ(gpus.driver().destroyGraph(graph), Error::Success);
  }
  std::vector<Stream> moreStreams() {
    std::vector<Stream> more;
    for (size_t r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, static_cast<int>(r));
      more.push_back(gpus.makeStream());
    }
    return more;
  }
  void destroyStreams(const std::vector<Stream>& which) {
    for (const Stream s : which) EXPECT_EQ(gpus.driver().streamDestroy(s), Error::Success);
  }
  void awaitAll(const std::vector<Stream>& where) {
    for (size_t r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, static_cast<int>(r));
      synchronize(gpus, where[r]);
    }
  }
  void expectAll(int value, const std::string& when) {
    for (size_t r = 0; r < kRanks; ++r)
      for (size_t i = 0; i < kCount; i += 97) ASSERT_EQ(data[r]->data()[i], value) << when << ", rank " << r << ", element " << i;
  }

  /// Of GPU 0, but for what the library keeps for its next use.
  Bytes used() {
    comm::process().devices.find(0)->pool.trim();
    return gpus.driver().used(0);
  }

  static constexpr size_t kCount = 5000;
  FakeGpus gpus{kRanks};
  std::vector<Stream> streams;
  std::vector<std::unique_ptr<GpuInts>> data;
  std::vector<ncclComm_t> comms;
};

class GpuGraphsOfMode : public GpuGraphs, public testing::WithParamInterface<CaptureMode> {};

// All that it opens is opened while the capture forbids it.
TEST_P(GpuGraphsOfMode, TheFirstCallOfACommunicatorIsCaptured) {
  const auto graphs = captured([&] { ASSERT_EQ(sumAll(comms, streams), ncclSuccess) << ncclGetLastError(nullptr); }, GetParam());
  expectAll(1, "nothing has run");
  for (int times = 1; times <= 3; ++times) {
    replay(graphs, streams);
    awaitAll(streams);
    expectAll(1 << times, format("replay {}", times));
  }
  destroyAll(graphs);
}

INSTANTIATE_TEST_SUITE_P(Modes, GpuGraphsOfMode, testing::Values(CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed),
                         [](const auto& mode) { return format("Mode{}", static_cast<int>(mode.param)); });

/// Ranks of a process do not wait for each other's captures, so as to map what is captured: once all is open, one thread may capture for
/// them in turns, outside a group.
TEST_F(GpuGraphs, OneThreadCapturesForItsRanksInTurns) {
  const ScopedSetting wish("TUTTI_MAPPED", "1");
  std::vector<ncclComm_t> own = create();
  ASSERT_EQ(sumAll(own, streams), ncclSuccess);
  awaitAll(streams);
  begin(CaptureMode::ThreadLocal);
  for (size_t r = 0; r < kRanks; ++r) EXPECT_EQ(sum(*data[r], kCount, own[r], streams[r]), ncclSuccess) << ncclGetLastError(own[r]);
  const auto graphs = end();
  replay(graphs, streams);
  awaitAll(streams);
  expectAll(4, "in turns");
  destroyAll(graphs);
  destroy(own);
}

TEST_F(GpuGraphs, CommunicatorsComeAndGoWhileACaptureIsUnderWay) {
  const auto others = moreStreams();
  const auto graphs = captured([&] {
    ASSERT_EQ(sumAll(comms, streams), ncclSuccess);
    auto second = create();
    ASSERT_EQ(sumAll(second, others), ncclSuccess) << ncclGetLastError(nullptr);
    destroy(second);  // waits for its kernels
    const UseGpu use(gpus, 0);
    const GpuInts memory(1000);
  });
  expectAll(2, "what was not captured has run");
  replay(graphs, streams);
  awaitAll(streams);
  expectAll(4, "the replay");
  destroyAll(graphs);
  destroyStreams(others);
}

TEST_F(GpuGraphs, ReplaysAndCallsOnAnyStreamsFollowOneAnother) {
  const auto others = moreStreams();
  const auto graphs = captured([&] {
    ASSERT_EQ(sumAll(comms, streams), ncclSuccess);
    ASSERT_EQ(sumAll(comms, streams), ncclSuccess);
  });
  const driver::cuda::FakeShape shape = gpus.driver().shape(graphs[0]);
  EXPECT_EQ(shape.works, 2u);
  EXPECT_EQ(shape.mostEdges, 1u) << "the launch of a node that follows many waits for the GPU";
  EXPECT_EQ(shape.waits, 1u) << "one for all works";
  EXPECT_EQ(shape.records, 1u);
  EXPECT_TRUE(shape.isChain && shape.isFenced);
  for (int round = 0; round < 3; ++round) {  // nothing is waited for in between
    replay(graphs, streams);
    ASSERT_EQ(sumAll(comms, others), ncclSuccess);
    replay(graphs, others);
    ASSERT_EQ(sumAll(comms, streams), ncclSuccess);
  }
  awaitAll(streams);
  awaitAll(others);
  expectAll(1 << 18, "3 rounds of 6");
  ncclResult_t state = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(comms[0], &state), ncclSuccess);
  EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comms[0]);
  destroyAll(graphs);
  destroyStreams(others);
}

TEST_F(GpuGraphs, WithoutMixingAGraphHasNoEvents) {
  destroy(comms);
  const ScopedSetting mixing("NCCL_GRAPH_MIXING_SUPPORT", "0");
  comms = create();
  const auto graphs = captured([&] { ASSERT_EQ(sumAll(comms, streams), ncclSuccess); });
  const driver::cuda::FakeShape shape = gpus.driver().shape(graphs[0]);
  EXPECT_EQ(shape.works + shape.waits + shape.records, 1u);
  replay(graphs, streams);
  awaitAll(streams);
  expectAll(2, "after the replay");
  destroyAll(graphs);
}

TEST_F(GpuGraphs, AForkInACaptureKeepsTheCommunicatorsOrder) {
  const auto others = moreStreams();
  Event forked[2] = {};
  const auto graphs = captured([&] {
    for (size_t r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, static_cast<int>(r));
      ASSERT_EQ(gpus.driver().eventCreate(&forked[r], 0), Error::Success);
      ASSERT_EQ(gpus.driver().eventRecord(forked[r], streams[r]), Error::Success);
      ASSERT_EQ(gpus.driver().streamWaitEvent(others[r], forked[r], 0), Error::Success);
    }
    ASSERT_EQ(sumAll(comms, streams), ncclSuccess);
    ASSERT_EQ(sumAll(comms, others), ncclSuccess) << "on a branch of its own, as far as the program says";
    ASSERT_EQ(sumAll(comms, streams), ncclSuccess);
    for (size_t r = 0; r < kRanks; ++r) {
      ASSERT_EQ(gpus.driver().eventRecord(forked[r], others[r]), Error::Success);
      ASSERT_EQ(gpus.driver().streamWaitEvent(streams[r], forked[r], 0), Error::Success);
    }
  });
  const driver::cuda::FakeShape shape = gpus.driver().shape(graphs[1]);
  EXPECT_EQ(shape.works, 3u);
  EXPECT_TRUE(shape.isChain && shape.isFenced);
  replay(graphs, streams);
  awaitAll(streams);
  expectAll(8, "three sums");
  destroyAll(graphs);
  destroyStreams(others);
  for (const Event event : forked) EXPECT_EQ(gpus.driver().eventDestroy(event), Error::Success);
}

TEST_F(GpuGraphs, SeveralCommunicatorsInSeveralGraphs) {
  auto second = create();
  const auto both = [&] {
    ASSERT_EQ(sumAll(comms, streams), ncclSuccess);
    ASSERT_EQ(sumAll(second, streams), ncclSuccess);
  };
  const auto one = captured(both);
  const auto two = captured(both);
  replay(two, streams);
  replay(one, streams);
  replay(two, streams);
  ASSERT_EQ(sumAll(second, streams), ncclSuccess);
  awaitAll(streams);
  expectAll(1 << 7, "three graphs of two, and one");
  destroyAll(two);
  replay(one, streams);
  awaitAll(streams);
  expectAll(1 << 9, "the other is gone");
  destroyAll(one);
  destroy(second);
}

TEST_F(GpuGraphs, AGraphOutlivesItsCommunicator) {
  destroy(comms);
  const Bytes before = used();
  comms = create();
  const auto graphs = captured([&] { ASSERT_EQ(sumAll(comms, streams), ncclSuccess); });
  replay(graphs, streams);
  const faults::Stopwatch watch;
  destroy(comms);
  EXPECT_LT(watch.seconds(), kSlow) << "nobody waits for graphs";
  awaitAll(streams);
  expectAll(2, "before");
  auto later = create();  // looks for what may be given back, and takes memory
  ASSERT_EQ(sumAll(later, streams), ncclSuccess);
  replay(graphs, streams);
  awaitAll(streams);
  expectAll(8, "what it needs is still there, and nobody else's");
  destroy(later);
  EXPECT_GT(used(), before);
  destroyAll(graphs);
  later = create();
  destroy(later);
  EXPECT_EQ(used(), before) << "given back with the graph";
}

TEST_F(GpuGraphs, AThousandCapturedCallsTakeNoMemory) {
  const auto captureOnce = [&](int calls) {
    const auto graphs = captured([&] {
      for (int i = 0; i < calls; ++i) ASSERT_EQ(sumAll(comms, streams, 100), ncclSuccess);
    });
    destroyAll(graphs);
  };
  captureOnce(10);
  const Bytes used = gpus.driver().used(0);
  const driver::cuda::FakeCounts before = gpus.driver().alive();
  for (int i = 0; i < 100; ++i) captureOnce(10);
  EXPECT_EQ(gpus.driver().used(0), used);
  EXPECT_TRUE(gpus.driver().alive() == before) << gpus.alive();
}

// Some streams of a group are captured and others not: refused, for all communicators of the group, before anything has happened.
TEST_F(GpuGraphs, AGroupThatIsHalfCapturedIsRefusedAndHarmless) {
  auto second = create();
  const auto others = moreStreams();
  const auto graphs = captured([&] {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t r = 0; r < kRanks; ++r) {
      ASSERT_EQ(sum(*data[r], kCount, comms[r], streams[r]), ncclSuccess);
      ASSERT_EQ(sum(*data[r], kCount, second[r], streams[r]), ncclSuccess);
      ASSERT_EQ(sum(*data[r], kCount, second[r], others[r]), ncclSuccess);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("captured"), std::string::npos) << ncclGetLastError(nullptr);
    ASSERT_EQ(sumAll(comms, streams), ncclSuccess) << "the capture goes on";
  });
  for (const bool isFirst : {true, false}) {
    const auto& on = isFirst ? comms : second;
    const auto& where = isFirst ? streams : others;
    ncclResult_t state = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(on[0], &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(on[0]);
    ASSERT_EQ(sumAll(on, where), ncclSuccess);
    awaitAll(where);
  }
  replay(graphs, streams);
  awaitAll(streams);
  expectAll(8, "two sums, and the replay");
  destroyAll(graphs);
  destroy(second);
  destroyStreams(others);
}

// The same launch comes again and again, so its number must come from the device.
TEST_F(GpuGraphs, AReplayBesideAnotherCallIsAMismatch) {
  const auto graphs = captured([&] { ASSERT_EQ(sumAll(comms, streams, 1000), ncclSuccess); });
  for (int i = 0; i < 2; ++i) replay(graphs, streams);
  ASSERT_EQ(sumAll(comms, streams, 1001), ncclSuccess);
  replay(graphs, streams);
  awaitAll(streams);
  ncclResult_t state = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(comms[0], &state), ncclSuccess);
  ASSERT_EQ(state, ncclSuccess) << ncclGetLastError(comms[0]);
  {
    const UseGpu use(gpus, 0);
    ASSERT_EQ(gpus.driver().launchGraph(graphs[0], streams[0]), Error::Success);
  }
  ASSERT_EQ(sum(*data[1], 1001, comms[1], streams[1]), ncclSuccess);
  EXPECT_EQ(awaitError(comms[1], 5 * kSlow), ncclInvalidUsage) << ncclGetLastError(comms[1]);
  awaitAll(streams);
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  comms.clear();
  destroyAll(graphs);
}

/// With NCCL_LAUNCH_ORDER_IMPLICIT as the parameter says.
class GpuLaunchOrder : public GpuGraphs, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    order_ = std::make_unique<ScopedSetting>("NCCL_LAUNCH_ORDER_IMPLICIT", GetParam() ? "1" : "0");
    GpuGraphs::SetUp();
  }

 private:
  std::unique_ptr<ScopedSetting> order_;
};

// Kernels of two communicators that wait for their peers, each where the other's peer should run, would wait for ever.
TEST_P(GpuLaunchOrder, CommunicatorsOfAGpuFollowOneAnotherWhereThatIsWanted) {
  auto second = create();
  const auto others = moreStreams();
  auto gate = std::make_shared<std::promise<void>>();
  {
    const UseGpu use(gpus, 0);
    ASSERT_EQ(gpus.driver().enqueue(streams[0], [gate, opened = gate->get_future().share()] { opened.wait(); }), Error::Success);
  }
  ASSERT_EQ(sumAll(comms, streams), ncclSuccess);
  ASSERT_EQ(sumAll(second, others), ncclSuccess);
  if (!GetParam()) awaitAll(others);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  {
    const UseGpu use(gpus, 0);
    EXPECT_EQ(gpus.driver().streamQuery(others[0]), GetParam() ? Error::NotReady : Error::Success);
  }
  gate->set_value();
  awaitAll(streams);
  awaitAll(others);
  const auto graphs = captured([&] {
    ASSERT_EQ(sumAll(comms, streams), ncclSuccess);
    ASSERT_EQ(sumAll(second, streams), ncclSuccess);
  });
  EXPECT_EQ(gpus.driver().shape(graphs[0]).records, GetParam() ? 3u : 2u) << "one for the GPU, one for each communicator";
  replay(graphs, others);
  awaitAll(others);
  if (GetParam()) expectAll(16, "four sums, none beside another");
  destroyAll(graphs);
  destroyStreams(others);
  destroy(second);
}

INSTANTIATE_TEST_SUITE_P(Implicit, GpuLaunchOrder, testing::Bool());

// Kernels compare while they wait; of what was served at once, the next call tells.
TEST_F(GpuGraphs, ACallThatDiffersIsNoticedByTheNextOne) {
  ASSERT_EQ(sumAll(comms, streams), ncclSuccess);
  awaitAll(streams);
  auto use = comm::process().handles.use(comms[0]);
  exec::host::Call other{Collective::AllReduce, DataType::F64, 0, 0, kCount, use->nextSequence(), false};
  use->hub().board(Rank(1)).post(other);  // as if rank 1 had come to another call
  EXPECT_EQ(sum(*data[0], kCount, comms[0], streams[0]), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(comms[0])).find("rank 1"), std::string::npos) << ncclGetLastError(comms[0]);
  EXPECT_EQ(awaitError(comms[1], kSlow), ncclInvalidUsage) << "both hear of it";
}

}  // namespace
}  // namespace tutti::conformance::graphs_test
