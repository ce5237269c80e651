// Channels with rings of their own, on the GPUs of an NVLink mesh: a call has the same bits alone, in a group, and in a graph.
#include <cstring>
#include <vector>

#include "conformance/gpu/fake_gpus.h"
#include "conformance/gpu/played_machine.h"

namespace tutti::conformance::tracks_test {
namespace {

using driver::cuda::CaptureMode;
using driver::cuda::Error;
using driver::cuda::Graph;
using driver::cuda::Stream;

constexpr int kRanks = 8;
constexpr size_t kCount = 50021;

class GpuTracks : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const ScopedEnv algorithm("TUTTI_ALGO", GetParam());
    const ScopedEnv protocol("NCCL_PROTO", "Simple");
    ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
    for (int r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, r);
      streams.push_back(gpus.makeStream());
      for (auto* buffers : {&in, &out, &other}) {
        void* memory = nullptr;
        ASSERT_EQ(ncclMemAlloc(&memory, kCount * sizeof(float)), ncclSuccess) << ncclGetLastError(nullptr);
        buffers->push_back(static_cast<float*>(memory));
      }
      Random random(mix(11, static_cast<uint64_t>(r)));
      for (size_t i = 0; i < kCount; ++i) in.back()[i] = static_cast<float>(random.between(-1, 1));
    }
  }
  void TearDown() override {
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    for (auto* buffers : {&in, &out, &other})
      for (float* const memory : *buffers) EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
    for (int r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, r);
      EXPECT_EQ(gpus.driver().streamDestroy(streams[static_cast<size_t>(r)]), Error::Success);
    }
  }

  /// One call of all ranks, behind another one in the same group if wanted.
  void sumAll(bool withOther) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, static_cast<int>(r));
      if (withOther) {
        EXPECT_EQ(ncclAllReduce(in[r], other[r], 3001, ncclFloat, ncclMax, comms[r], streams[r]), ncclSuccess);
      }
      EXPECT_EQ(ncclAllReduce(in[r], out[r], kCount, ncclFloat, ncclSum, comms[r], streams[r]), ncclSuccess);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  }
  void await() {
    for (int r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, r);
      synchronize(gpus, streams[static_cast<size_t>(r)]);
    }
  }
  /// What rank 0 has; all have the same.
  std::vector<float> taken() {
    await();
    const std::vector<float> result(out[0], out[0] + kCount);
    for (float* const of : out) {
      EXPECT_EQ(std::vector<float>(of, of + kCount), result);  // no zero and no NaN among them: equal values have equal bits
      std::memset(of, 0, kCount * sizeof(float));
    }
    return result;
  }

  PlayedMachine played{"nvidia-dgx1v-v100x8"};
  FakeGpus gpus{kRanks};
  std::vector<ncclComm_t> comms{kRanks};
  std::vector<Stream> streams;
  std::vector<float*> in, out, other;
};

TEST_P(GpuTracks, ACallHasTheSameBitsAloneInAGroupAndInAGraph) {
  ASSERT_GT(layoutOf()(kRanks).tracks(), 1);
  ASSERT_GE(explainChannels(comms[0], "all_reduce", kCount, ncclFloat, 0), 2) << "or one track does it all";
  sumAll(false);
  const std::vector<float> alone = taken();
  sumAll(true);
  EXPECT_EQ(taken(), alone);
  for (const Stream stream : streams) ASSERT_EQ(gpus.driver().beginCapture(stream, CaptureMode::Global), Error::Success);
  sumAll(true);
  std::vector<Graph> graphs(kRanks);
  for (size_t r = 0; r < kRanks; ++r) ASSERT_EQ(gpus.driver().endCapture(streams[r], &graphs[r]), Error::Success);
  for (int replay = 0; replay < 2; ++replay) {
    for (size_t r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, static_cast<int>(r));
      ASSERT_EQ(gpus.driver().launchGraph(graphs[r], streams[r]), Error::Success);
    }
    EXPECT_EQ(taken(), alone);
  }
  for (const Graph graph : graphs) EXPECT_EQ(gpus.driver().destroyGraph(graph), Error::Success);
}

/// The order is that of the tracks: one ring for all channels gives other bits, or the test shows nothing.
TEST_P(GpuTracks, TheOrderIsThatOfTheChannelsTrack) {
  const int channels = explainChannels(comms[0], "all_reduce", kCount, ncclFloat, 0);
  Case c;
  c.algorithm = GetParam();
  c.ranks = kRanks;
  c.count = kCount;
  std::vector<Contents> inputs;
  for (const float* const values : in) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(values);
    inputs.emplace_back(bytes, bytes + kCount * sizeof(float));
  }
  sumAll(false);
  const std::vector<float> result = taken();
  const auto* const bytes = reinterpret_cast<const std::byte*>(result.data());
  EXPECT_EQ(firstDifference(c, bytes, expectedOutput(c, inputs, channels)[0]), "");
  EXPECT_NE(firstDifference(c, bytes, expectedOutput(c, inputs, 1)[0]), "");
}

class GpuRings : public GpuTracks {};

/// Also where the user allows fewer channels than there are tracks, and some pipes are on none of them.
TEST_P(GpuRings, EveryRootHasItsPipes) {
  ASSERT_GT(layoutOf()(kRanks).tracks(), 1);
  for (int root = 0; root < kRanks; ++root) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, static_cast<int>(r));
      EXPECT_EQ(ncclBroadcast(in[r], out[r], kCount, ncclFloat, root, comms[r], streams[r]), ncclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << "root " << root << ": " << ncclGetLastError(nullptr);
    const float* const sent = in[static_cast<size_t>(root)];
    EXPECT_EQ(taken(), std::vector<float>(sent, sent + kCount)) << "root " << root;
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, GpuTracks, testing::Values("ring", "tree"));
INSTANTIATE_TEST_SUITE_P(Algorithms, GpuRings, testing::Values("ring"));

}  // namespace
}  // namespace tutti::conformance::tracks_test
