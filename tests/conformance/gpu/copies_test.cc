// Calls that copy engines, or one block, carry out on buffers in symmetric windows: right to the last byte, by copies where that is
// promised and by kernels everywhere else, on all ranks alike; and what happens when promises, peers or driver calls break.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "conformance/gpu/faults.h"
#include "core/format.h"
#include "exec/cuda/host_kernels.h"
#include "exec/cuda/moved.h"

namespace tutti::conformance::copies_test {
namespace {

using driver::cuda::Error;
using driver::cuda::Graph;
using driver::cuda::Stream;
using exec::cuda::HostKernels;
using faults::kSlow;

constexpr size_t kRoom = size_t{3} << 20;

enum class Kind { AllGather, AllToAll, Broadcast };
enum class Way { Kernels, Copies, Block, CopiesOrBlock, Blocks };

/// What rank `from` gives to `to`.
void give(size_t from, size_t to, size_t salt, uint8_t* bytes, size_t count) {
  uint64_t sevens = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i % 7 == 0) sevens = mix(mix(from * 31 + to, i / 7), salt);
    bytes[i] = static_cast<uint8_t>(sevens + i);
  }
}

void gatherInProcess(faults::ProcessRanks::Self& self) {
  const ScopedSetting engines("TUTTI_COPY_ENGINES", "1");
  const int ranks = self.count();
  FakeGpus gpus(ranks);
  const UseGpu use(gpus, self.index());
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, ranks, self.freshId(), self.index()), ncclSuccess) << ncclGetLastError(nullptr);
  void* data = nullptr;
  ASSERT_EQ(ncclMemAlloc(&data, kRoom), ncclSuccess);
  ncclWindow_t window = nullptr;
  ASSERT_EQ(ncclCommWindowRegister(comm, data, kRoom, &window, NCCL_WIN_COLL_SYMMETRIC), ncclSuccess) << ncclGetLastError(comm);
  constexpr size_t kBytes = 70'001;
  for (int turn = 0; turn < 5; ++turn) {
    auto* const mine = static_cast<uint8_t*>(data) + kBytes * static_cast<size_t>(self.index());
    give(static_cast<size_t>(self.index()), 0, static_cast<size_t>(turn), mine, kBytes);
    ASSERT_EQ(ncclAllGather(mine, data, kBytes, ncclInt8, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
    synchronize(gpus);
    for (size_t from = 0; from < static_cast<size_t>(ranks); ++from) {
      std::vector<uint8_t> given(kBytes);
      give(from, 0, static_cast<size_t>(turn), given.data(), kBytes);
      EXPECT_EQ(std::memcmp(static_cast<uint8_t*>(data) + from * kBytes, given.data(), kBytes), 0) << "of rank " << from;
    }
  }
  EXPECT_EQ(HostKernels::counts().copyStages, 10u);
  EXPECT_EQ(HostKernels::counts().launches, 0u);
  EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  self.meet(1);
  EXPECT_EQ(ncclMemFree(data), ncclSuccess);
}

TEST(GpuCopiesProcesses, PeersAreMappedAcrossProcesses) {
  faults::ProcessRanks children(3, gatherInProcess);
  children.expectAllWell({}, 60);
}

/// Ranks of this thread with a window for inputs and one for outputs each.
class GpuCopies : public testing::Test {
 protected:
  void open(size_t ranks, const char* engines = "1") {
    engines_ = std::make_unique<ScopedSetting>("TUTTI_COPY_ENGINES", engines);
    gpus = std::make_unique<FakeGpus>(static_cast<int>(ranks));
    comms.resize(ranks);
    ASSERT_EQ(ncclCommInitAll(comms.data(), static_cast<int>(ranks), nullptr), ncclSuccess) << ncclGetLastError(nullptr);
    for (size_t r = 0; r < ranks; ++r) {
      const UseGpu use(*gpus, static_cast<int>(r));
      streams.push_back(gpus->makeStream());
      for (auto* list : {&ins, &outs}) {
        list->push_back(nullptr);
        ASSERT_EQ(ncclMemAlloc(&list->back(), room), ncclSuccess);
      }
    }
    inWindows.resize(ranks);
    outWindows.resize(ranks);
  }
  /// Of a policy that wants no multiprocessors for data.
  void openZero(int ranks, int maxCtas = NCCL_CONFIG_UNDEF_INT) {
    open(static_cast<size_t>(ranks), "-1");
    end();
    comms.assign(static_cast<size_t>(ranks), nullptr);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    config.maxCTAs = maxCtas;
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int r = 0; r < ranks; ++r) {
      const UseGpu use(*gpus, r);
      ASSERT_EQ(ncclCommInitRankConfig(&comms[static_cast<size_t>(r)], ranks, id, r, &config), ncclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    registerAll();
  }
  void registerAll(int flags = NCCL_WIN_COLL_SYMMETRIC) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t r = 0; r < comms.size(); ++r) {
      ASSERT_EQ(ncclCommWindowRegister(comms[r], ins[r], room, &inWindows[r], flags), ncclSuccess) << ncclGetLastError(comms[r]);
      ASSERT_EQ(ncclCommWindowRegister(comms[r], outs[r], room, &outWindows[r], flags), ncclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    for (size_t r = 0; r < comms.size(); ++r) ASSERT_TRUE(inWindows[r] != nullptr && outWindows[r] != nullptr);
  }
  void deregisterAll() {
    for (size_t r = 0; r < comms.size(); ++r)
      for (auto* windows : {&inWindows, &outWindows})
        ASSERT_EQ(ncclCommWindowDeregister(comms[r], std::exchange((*windows)[r], nullptr)), ncclSuccess) << ncclGetLastError(comms[r]);
  }
  void end(bool aborts = false) {
    for (const ncclComm_t comm : comms) {
      if (comm == nullptr) continue;
      EXPECT_EQ(aborts ? ncclCommAbort(comm) : ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
    }
    comms.clear();
  }
  void TearDown() override {
    end();
    for (size_t r = 0; r < streams.size(); ++r) {
      const UseGpu use(*gpus, static_cast<int>(r));
      synchronize(*gpus, streams[r]);
      EXPECT_EQ(gpus->driver().streamDestroy(streams[r]), Error::Success);
    }
    for (void* const memory : ins) EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
    for (void* const memory : outs) EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
    gpus.reset();
    engines_.reset();
  }

  struct Trial {
    Kind kind = Kind::AllGather;
    size_t bytes = 0;  ///< that a rank gives to another
    size_t offset = 0;
    bool inPlace = false;
    int root = 0;
  };
  size_t ranks() const { return comms.size(); }
  uint8_t* out(const Trial& t, size_t r) const { return static_cast<uint8_t*>(outs[r]) + t.offset; }
  uint8_t* in(const Trial& t, size_t r) const {
    if (!t.inPlace) return static_cast<uint8_t*>(ins[r]) + t.offset / 2;
    return t.kind == Kind::AllGather ? out(t, r) + r * t.bytes : out(t, r);
  }
  size_t inBytes(const Trial& t) const { return t.kind == Kind::AllToAll ? ranks() * t.bytes : t.bytes; }
  size_t outBytes(const Trial& t) const { return t.kind == Kind::Broadcast ? t.bytes : ranks() * t.bytes; }
  static size_t receiver(const Trial& t, size_t to) { return t.kind == Kind::AllToAll ? to : 0; }

  void fill(const Trial& t, size_t salt) {
    for (size_t r = 0; r < ranks(); ++r) {
      std::memset(outs[r], 0xa5, room);
      if (t.kind == Kind::Broadcast && static_cast<int>(r) != t.root) continue;
      for (size_t to = 0; to * t.bytes < inBytes(t); ++to) give(r, to, salt, in(t, r) + to * t.bytes, t.bytes);
    }
  }
  ncclResult_t call(const Trial& t, size_t r, Stream stream) {
    switch (t.kind) {
      case Kind::AllGather: return ncclAllGather(in(t, r), out(t, r), t.bytes, ncclInt8, comms[r], stream);
      case Kind::AllToAll: return ncclAlltoAll(in(t, r), out(t, r), t.bytes, ncclInt8, comms[r], stream);
      case Kind::Broadcast: return ncclBroadcast(in(t, r), out(t, r), t.bytes, ncclInt8, t.root, comms[r], stream);
    }
    return ncclInternalError;
  }
  ncclResult_t callAll(const Trial& t) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t r = 0; r < ranks(); ++r) EXPECT_EQ(call(t, r, streams[r]), ncclSuccess) << ncclGetLastError(comms[r]);
    return ncclGroupEnd();
  }
  void await() {
    for (size_t r = 0; r < ranks(); ++r) {
      const UseGpu use(*gpus, static_cast<int>(r));
      synchronize(*gpus, streams[r]);
    }
  }
  void expectRight(const Trial& t, size_t salt, const std::string& what) {
    for (size_t r = 0; r < ranks(); ++r) {
      const auto* const all = static_cast<const uint8_t*>(outs[r]);
      std::vector<uint8_t> part(t.bytes);
      for (size_t first = 0; first < outBytes(t); first += t.bytes) {
        give(t.kind == Kind::Broadcast ? static_cast<size_t>(t.root) : first / t.bytes, receiver(t, r), salt, part.data(), t.bytes);
        const size_t i = static_cast<size_t>(std::mismatch(part.begin(), part.end(), all + t.offset + first).first - part.begin());
        ASSERT_EQ(i, t.bytes) << what << ", rank " << r << ": byte " << first + i << " is " << +all[t.offset + first + i] << ", not "
                              << +part[i % t.bytes];
      }
      for (size_t i = 0; i < t.offset; ++i) ASSERT_EQ(all[i], 0xa5) << what << ": rank " << r << " was written to before its output";
      for (size_t i = t.offset + outBytes(t); i < std::min(room, t.offset + outBytes(t) + 64); ++i)
        ASSERT_EQ(all[i], 0xa5) << what << ": rank " << r << " was written to behind its output";
    }
  }
  void run(const Trial& t, bool byCopies, size_t salt = 1) { run(t, byCopies ? Way::Copies : Way::Kernels, salt); }
  /// Runs it once, and sees who did.
  void run(const Trial& t, Way way, size_t salt = 1) {
    const std::string what = format("kind {}, {} bytes at {}, in place {}, root {}, {} ranks", static_cast<int>(t.kind), t.bytes, t.offset,
                                    t.inPlace, t.root, ranks());
    fill(t, salt);
    const auto before = HostKernels::counts();
    ASSERT_EQ(callAll(t), ncclSuccess) << what << ": " << ncclGetLastError(nullptr);
    await();
    expectRight(t, salt, what);
    const auto after = HostKernels::counts();
    const uint64_t byCopies = (after.copyStages - before.copyStages) / 2, byBlock = after.moved - before.moved;
    EXPECT_EQ(byCopies + byBlock, way == Way::Kernels ? 0 : ranks()) << what;
    EXPECT_TRUE(way != Way::Copies || byBlock == 0) << what;
    EXPECT_TRUE((way != Way::Block && way != Way::Blocks) || byCopies == 0) << what;
    EXPECT_TRUE(way != Way::Block || after.movedBlocks == 1) << what << ", " << after.movedBlocks << " blocks";
    EXPECT_EQ(after.launches != before.launches, way == Way::Kernels && t.bytes != 0) << what;
  }
  /// One node a rank, or several, which run as often as their graph does.
  void captureAndReplay(const Trial& t, bool isOneNode = true) {
    std::vector<Graph> graphs(ranks());
    for (const Stream s : streams) ASSERT_EQ(gpus->driver().beginCapture(s), Error::Success);
    ASSERT_EQ(callAll(t), ncclSuccess) << ncclGetLastError(nullptr);
    for (size_t r = 0; r < ranks(); ++r) ASSERT_EQ(gpus->driver().endCapture(streams[r], &graphs[r]), Error::Success);
    EXPECT_EQ(gpus->driver().shape(graphs[0]).works == 1, isOneNode);
    for (size_t salt = 20; salt < 23; ++salt) {
      fill(t, salt);
      for (size_t r = 0; r < ranks(); ++r) {
        const UseGpu use(*gpus, static_cast<int>(r));
        ASSERT_EQ(gpus->driver().launchGraph(graphs[r], streams[r]), Error::Success);
      }
      await();
      expectRight(t, salt, format("replay {}", salt));
    }
    for (const Graph graph : graphs) EXPECT_EQ(gpus->driver().destroyGraph(graph), Error::Success);
  }
  void abortWhileRankZeroWaits() {
    ASSERT_EQ(call({Kind::AllGather, 1000, 0}, 0, streams[0]), ncclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const faults::Stopwatch watch;
    EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
    comms[0] = nullptr;
    {
      const UseGpu use(*gpus, 0);
      synchronize(*gpus, streams[0]);
    }
    EXPECT_LT(watch.seconds(), kSlow);
    EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
    comms[1] = nullptr;
  }
  ncclResult_t stateOf(size_t r) { return awaitError(comms[r], 5 * kSlow); }

  size_t room = kRoom;  ///< of each buffer
  std::unique_ptr<FakeGpus> gpus;
  std::vector<ncclComm_t> comms;
  std::vector<Stream> streams;
  std::vector<void*> ins;
  std::vector<void*> outs;
  std::vector<ncclWindow_t> inWindows;
  std::vector<ncclWindow_t> outWindows;

 private:
  std::unique_ptr<ScopedSetting> engines_;
};

class GpuCopiesOfRanks : public GpuCopies, public testing::WithParamInterface<size_t> {};

TEST_P(GpuCopiesOfRanks, EveryByteIsRightAndNoKernelMovesAny) {
  open(GetParam());
  registerAll();
  size_t salt = 0;
  for (const size_t bytes : {size_t{1}, size_t{3}, size_t{4096}, size_t{100'003}})
    for (const size_t offset : {size_t{0}, size_t{1}, size_t{4099}})
      for (const bool inPlace : {false, true}) {
        run({Kind::AllGather, bytes, offset, inPlace}, true, ++salt);
        run({Kind::AllToAll, bytes, offset, false}, true, ++salt);
        run({Kind::Broadcast, bytes, offset, inPlace, static_cast<int>((bytes + offset) % ranks())}, true, ++salt);
      }
  run({Kind::AllGather, 0, 0}, false);
  run({Kind::Broadcast, 0, 0}, false);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuCopiesOfRanks, testing::Values(2, 3, 4), [](const auto& ranks) { return format("R{}", ranks.param); });

// Rows of them are copied by another call, and what is left of a row by a third.
TEST_F(GpuCopies, EveryByteOfLargeOwnPiecesIsRight) {
  open(2);
  registerAll();
  constexpr size_t kBytes = (size_t{1} << 20) + 5000;
  run({Kind::AllGather, kBytes, 3, false}, true, 1);
  run({Kind::AllToAll, kBytes, 4, false}, true, 2);
  run({Kind::AllToAll, size_t{1} << 20, 0, false}, true, 3);
  for (const int root : {0, 1}) run({Kind::Broadcast, 2 * kBytes + 1, 1, false, root}, true, 4);
}

TEST_F(GpuCopies, WhatIsNotPromisedTakesKernels) {
  open(3);
  run({Kind::AllGather, 1000, 0}, false);
  registerAll(NCCL_WIN_DEFAULT);
  run({Kind::AllGather, 1000, 0}, false);
  deregisterAll();
  registerAll();
  run({Kind::AllGather, 1000, 0}, true);
  run({Kind::AllToAll, 1000, 0, true}, false);  // a peer would write over what is not sent yet
  deregisterAll();
  run({Kind::AllGather, 1000, 0}, false);
}

TEST_F(GpuCopies, OnlyWhereTheyAreFasterUnlessAskedFor) {
  open(2, "-1");
  registerAll();
  run({Kind::AllGather, 1000, 0}, false);
  char text[8192] = {};
  ASSERT_EQ(tuttiExplain(comms[0], "all_gather", size_t{1} << 28, ncclInt8, ncclSum, 0, text, sizeof text, nullptr), ncclSuccess);
  EXPECT_NE(std::string(text).find("\"copies\""), std::string::npos) << text;
  EXPECT_NE(std::string(text).find("NCCL_WIN_COLL_SYMMETRIC"), std::string::npos) << text;
  EXPECT_NE(std::string(text).find("copy engines"), std::string::npos) << text;
  ASSERT_EQ(tuttiExplain(comms[0], "all_gather", 100, ncclInt8, ncclSum, 0, text, sizeof text, nullptr), ncclSuccess);
  EXPECT_NE(std::string(text).find("slower by"), std::string::npos) << text;
  EXPECT_NE(std::string(text).find("\"moved\""), std::string::npos) << text;
}

TEST_F(GpuCopies, ForbiddenTheyAreNotTaken) {
  open(2, "0");
  registerAll();
  run({Kind::AllGather, 100'000, 0}, false);
}

TEST_F(GpuCopies, APolicyOfNoCtasTakesThemAndBoundsOfCtasHold) {
  openZero(2, 3);
  run({Kind::AllGather, 400'000, 0}, Way::Copies);
  run({Kind::AllGather, 1000, 0}, Way::Block);
  const auto before = HostKernels::counts();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < 2; ++r)
    ASSERT_EQ(ncclAllReduce(ins[r], outs[r], kRoom / 4, ncclFloat, ncclSum, comms[r], streams[r]), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  await();
  EXPECT_GT(HostKernels::counts().mapped, before.mapped) << "what reduces has no other way to the windows";
  EXPECT_LE(HostKernels::counts().mostBlocks, std::max(3, before.mostBlocks));
}

class GpuMovedOfRanks : public GpuCopies, public testing::WithParamInterface<int> {};

TEST_P(GpuMovedOfRanks, EveryByteOfALittleIsRightAndOneBlockMovesIt) {
  openZero(GetParam());
  size_t salt = 0;
  for (const size_t bytes : {size_t{1}, size_t{3}, size_t{4096}, size_t{50'000}, size_t{50'003}})
    for (const size_t offset : {size_t{0}, size_t{1}, size_t{4099}})
      for (const bool inPlace : {false, true}) {
        // More that is askew is left to engines, by the ranks that have it.
        const Way way = bytes < 8192 || (bytes % 16 == 0 && offset == 0) ? Way::Block : Way::CopiesOrBlock;
        run({Kind::AllGather, bytes, offset, inPlace}, way, ++salt);
        run({Kind::AllToAll, bytes, offset, false}, way, ++salt);
        run({Kind::Broadcast, bytes, offset, inPlace, static_cast<int>((bytes + offset) % ranks())}, way, ++salt);
      }
  run({Kind::AllGather, 50'000, 16, false}, Way::CopiesOrBlock, ++salt);
  run({Kind::AllGather, 50'000, 1, true}, Way::Copies, ++salt);  // and what either has counted, the other knows
  run({Kind::AllGather, 1000, 0}, Way::Block, ++salt);
  if (GetParam() < 4) run({Kind::AllGather, 1'000'000 / ranks(), 0}, Way::Copies, ++salt);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuMovedOfRanks, testing::Values(2, 3, 8), [](const auto& ranks) { return format("R{}", ranks.param); });

/// All ranks call, and those whose pieces are aligned take another way than the others.
TEST_F(GpuCopies, ABlockAndEnginesMeetInOneCall) {
  openZero(2);
  const Trial t{Kind::AllGather, 50'008, 0};  // what rank 1 gives begins between two vectors
  fill(t, 7);
  const auto before = HostKernels::counts();
  ASSERT_EQ(callAll(t), ncclSuccess) << ncclGetLastError(nullptr);
  await();
  expectRight(t, 7, "both ways");
  EXPECT_EQ(HostKernels::counts().moved - before.moved, 1u);
  EXPECT_EQ(HostKernels::counts().copyStages - before.copyStages, 2u);
}

TEST_F(GpuCopies, ElementsOfALittleMayBeOfAnySize) {
  openZero(3);
  for (size_t r = 0; r < 3; ++r) {
    auto* const own = static_cast<double*>(ins[r]);
    for (size_t i = 0; i < 999; ++i) own[i] = 1000.0 * static_cast<double>(r) + static_cast<double>(i);
  }
  const auto before = HostKernels::counts();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < 3; ++r) ASSERT_EQ(ncclAllGather(ins[r], outs[r], 999, ncclDouble, comms[r], streams[r]), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  await();
  EXPECT_EQ(HostKernels::counts().moved - before.moved, 3u);
  for (size_t r = 0; r < 3; ++r)
    for (size_t i = 0; i < 2997; ++i)
      ASSERT_EQ(static_cast<double*>(outs[r])[i], 1000.0 * static_cast<double>(i / 999) + static_cast<double>(i % 999)) << r << " " << i;
}

TEST_F(GpuCopies, CapturedALittleIsOneNode) {
  openZero(2);
  const auto before = HostKernels::counts();
  captureAndReplay({Kind::AllToAll, 4000, 100});
  EXPECT_EQ(HostKernels::counts().moved - before.moved, 2u) << "made once each";
  EXPECT_EQ(HostKernels::counts().launches, before.launches);
}

TEST_F(GpuCopies, ABrokenPromiseOfALittleIsAnErrorOfBothRanks) {
  openZero(2);
  std::memset(outs[0], 0xa5, kRoom);
  std::memset(outs[1], 0xa5, kRoom);
  ASSERT_EQ(call({Kind::AllGather, 1000, 0}, 0, streams[0]), ncclSuccess);
  ASSERT_EQ(call({Kind::AllGather, 1000, 512}, 1, streams[1]), ncclSuccess);
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(stateOf(r), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(comms[r])).find("lies elsewhere"), std::string::npos) << ncclGetLastError(comms[r]);
  }
  await();
  for (const void* out : outs)
    for (size_t i = 0; i < 4096; ++i) ASSERT_EQ(static_cast<const uint8_t*>(out)[i], 0xa5) << "something was moved";
  end(true);
}

TEST_F(GpuCopies, AnAbortEndsTheKernelOfALittle) {
  openZero(2);
  abortWhileRankZeroWaits();
}

TEST_F(GpuCopies, ADeadlineOfALittleNamesWhoHasNotGivenLeave) {
  const ScopedSetting limit("TUTTI_TIMEOUT_MS", "300");
  openZero(2);
  std::memset(outs[1], 0xa5, kRoom);
  ASSERT_EQ(call({Kind::AllGather, 1000, 0}, 0, streams[0]), ncclSuccess);
  EXPECT_EQ(stateOf(0), ncclRemoteError);
  EXPECT_NE(std::string(ncclGetLastError(comms[0])).find("leave to use the buffers of rank 1"), std::string::npos)
      << ncclGetLastError(comms[0]);
  for (size_t i = 0; i < 2000; ++i) ASSERT_EQ(static_cast<uint8_t*>(outs[1])[i], 0xa5) << "written to without leave";
  end(true);
}

/// Several blocks, wherever they may.
class GpuMovedTogether : public GpuCopies {
 protected:
  void openTogether(size_t ranks, const char* engines = "-1") {
    mapped_ = std::make_unique<ScopedSetting>("TUTTI_MAPPED", "1");
    open(ranks, engines);
    registerAll();
  }
  void TearDown() override {
    GpuCopies::TearDown();
    mapped_.reset();
  }

 private:
  std::unique_ptr<ScopedSetting> mapped_;
};
class GpuMovedTogetherOfRanks : public GpuMovedTogether, public testing::WithParamInterface<size_t> {};

TEST_P(GpuMovedTogetherOfRanks, EveryByteIsRightAndSeveralBlocksMoveIt) {
  openTogether(GetParam());
  size_t salt = 0;
  const size_t most = kRoom / ranks() / 16 * 16 - 64;
  for (const size_t bytes : {size_t{16}, size_t{4096}, most, size_t{60'004}})
    for (const bool inPlace : {false, true}) {
      const Way way = bytes % 16 == 0 ? Way::Blocks : Way::CopiesOrBlock;
      run({Kind::AllGather, bytes, 0, inPlace}, way, ++salt);
      EXPECT_TRUE(bytes != most || HostKernels::counts().movedBlocks > 1);
      run({Kind::AllToAll, bytes, 0, false}, way, ++salt);
      run({Kind::Broadcast, bytes, 0, inPlace, static_cast<int>((bytes / 16 + (inPlace ? 1 : 0)) % ranks())}, way, ++salt);
    }
  // Askew: left to engines, and what either has counted, the other knows.
  run({Kind::AllGather, 50'003, 1, true}, Way::CopiesOrBlock, ++salt);
  run({Kind::AllGather, 50'000, 0}, Way::Blocks, ++salt);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuMovedTogetherOfRanks, testing::Values(2, 3, 4, 8), [](const auto& ranks) {
  return format("R{}", ranks.param);
});

TEST_F(GpuMovedTogether, BoundsOfCtasAndTheWishForEnginesHold) {
  for (const char* const most : {"1", "2", "5"}) {
    const ScopedSetting bound("NCCL_MAX_CTAS", most);
    openTogether(2);
    run({Kind::AllGather, 500'000, 0}, Way::Blocks);
    EXPECT_EQ(HostKernels::counts().movedBlocks, std::atoi(most));
    TearDown();
    streams.clear();
    ins.clear();
    outs.clear();
  }
  openTogether(2, "1");
  run({Kind::AllGather, 500'000, 0}, Way::Copies);
}

/// Where ranks send much no kernel stands around the copies, unless the user or the driver will not have it, and where they send little
/// none but kernels.
TEST_F(GpuCopies, StreamsCarryOutTheStagesOfLargeCalls) {
  const ScopedSetting asItLikes("TUTTI_STREAM_STAGES", "-1");
  room = size_t{56} << 20;
  open(2);
  registerAll();
  const auto onStreams = [&](const Trial& t) {
    const auto before = HostKernels::counts();
    run(t, true, t.bytes);
    const auto after = HostKernels::counts();
    const uint64_t byStreams = after.streamStages - before.streamStages;
    EXPECT_TRUE(byStreams == 0 || byStreams == 2 * ranks()) << "all ranks alike, both stages";
    return byStreams != 0;
  };
  constexpr size_t kMany = size_t{24} << 20;
  EXPECT_TRUE(onStreams({Kind::AllGather, kMany, 0, true}));
  EXPECT_TRUE(onStreams({Kind::AllToAll, kMany + 3, 5}));
  EXPECT_FALSE(onStreams({Kind::AllGather, kMany - 1, 0}));
  EXPECT_FALSE(onStreams({Kind::Broadcast, 2 * kMany, 0})) << "one rank sends";
  EXPECT_TRUE(onStreams({Kind::AllGather, kMany, 1}));
  captureAndReplay({Kind::AllGather, kMany, 0, true}, false);
  const auto again = [&](const char* way) {
    const ScopedSetting set("TUTTI_STREAM_STAGES", way);
    end();
    comms.assign(2, nullptr);
    ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
    registerAll();
  };
  again("0");
  EXPECT_FALSE(onStreams({Kind::AllGather, kMany, 0}));
  again("1");
  EXPECT_TRUE(onStreams({Kind::Broadcast, 1000, 0}));
}

/// What is expected to be fastest, as tuttiExplain says it: "moved" of several blocks, "copy engines", or what pipes do.
TEST_F(GpuCopies, TheWayOfALargeCallIsTheFastest) {
  const auto wayOf = [&](size_t count, ncclDataType_t type) {
    char text[16384] = {};
    EXPECT_EQ(tuttiExplain(comms[0], "all_gather", count, type, ncclSum, 0, text, sizeof text, nullptr), ncclSuccess);
    const std::string all(text);
    const size_t at = all.find("\"algorithm\":\"copies\"");
    EXPECT_NE(at, std::string::npos) << all;
    const std::string one = all.substr(at, all.find('}', at) - at);
    return std::tuple(one.find("\"moved\"") != std::string::npos, one.find("taken for buffers") != std::string::npos);
  };
  constexpr size_t kMany = 4 << 20;  // 16 MiB of floats, 32 of two ranks
  for (const int ranks : {2, 4}) {
    open(static_cast<size_t>(ranks), "-1");
    EXPECT_EQ(wayOf(kMany, ncclFloat), std::tuple(true, true)) << ranks;
    EXPECT_EQ(wayOf(16 * kMany, ncclFloat), std::tuple(false, true)) << "engines, " << ranks;
    EXPECT_FALSE(std::get<0>(wayOf(kMany + 1, ncclFloat))) << "chunks that are askew would be left to engines, " << ranks;
    end();
    {
      const ScopedSetting never("TUTTI_MAPPED", "0");
      comms.assign(static_cast<size_t>(ranks), nullptr);
      ASSERT_EQ(ncclCommInitAll(comms.data(), ranks, nullptr), ncclSuccess);
      EXPECT_FALSE(std::get<0>(wayOf(kMany, ncclFloat))) << ranks;
      end();
    }
    TearDown();
    streams.clear();
    ins.clear();
    outs.clear();
  }
  open(2, "-1");
}

TEST_F(GpuMovedTogether, CapturedTheyAreOneNodeAndRunAgain) {
  openTogether(2);
  captureAndReplay({Kind::AllToAll, 400'000, 0});
}

TEST_F(GpuMovedTogether, ABrokenPromiseGivesNothingToPeers) {
  openTogether(2);
  std::memset(outs[0], 0xa5, kRoom);
  std::memset(outs[1], 0xa5, kRoom);
  ASSERT_EQ(call({Kind::AllGather, 400'000, 0}, 0, streams[0]), ncclSuccess);
  ASSERT_EQ(call({Kind::AllGather, 400'000, 512}, 1, streams[1]), ncclSuccess);
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(stateOf(r), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(comms[r])).find("lies elsewhere"), std::string::npos) << ncclGetLastError(comms[r]);
  }
  await();
  for (size_t i = 400'000; i < 800'000; ++i) ASSERT_EQ(static_cast<const uint8_t*>(outs[0])[i], 0xa5) << "rank 1 gave something";
  for (size_t i = 512; i < 400'512; ++i) ASSERT_EQ(static_cast<const uint8_t*>(outs[1])[i], 0xa5) << "rank 0 gave something";
  end(true);
}

TEST_F(GpuMovedTogether, AnAbortEndsThem) {
  openTogether(2);
  abortWhileRankZeroWaits();
}

TEST(MovedLaunch, BlocksAreDividedByWhatTheyHave) {
  using exec::cuda::giversOf;
  EXPECT_EQ(giversOf(24, 1, true), 16);
  EXPECT_EQ(giversOf(32, 3, true), 27);
  EXPECT_EQ(giversOf(32, 7, false), 32) << "no piece is the rank's own";
  for (int32_t blocks = 2; blocks <= 64; ++blocks)
    for (int32_t given = 1; given <= 7; ++given) {
      EXPECT_GE(giversOf(blocks, given, true), 1);
      EXPECT_LT(giversOf(blocks, given, true), blocks) << "somebody has the rank's own piece";
    }
}

TEST_F(GpuCopies, AWindowThatOneRankCannotShareIsNone) {
  open(2);
  std::vector<std::byte> ordinary(2 * 8192);
  void* const aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(ordinary.data()) + 4095) / 4096 * 4096);
  std::vector<std::thread> threads;
  ncclWindow_t windows[2] = {};
  ncclResult_t results[2] = {};
  for (size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      const UseGpu use(*gpus, static_cast<int>(r));
      results[r] = ncclCommWindowRegister(comms[r], r == 0 ? outs[0] : aligned, 8192, &windows[r], NCCL_WIN_COLL_SYMMETRIC);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results[0], ncclSuccess);
  EXPECT_EQ(results[1], ncclUnhandledCudaError);
  EXPECT_NE(windows[0], nullptr);
  EXPECT_EQ(windows[1], nullptr);
  run({Kind::AllGather, 1000, 0}, false);
  EXPECT_EQ(ncclCommWindowDeregister(comms[0], windows[0]), ncclSuccess);
  EXPECT_EQ(ncclCommWindowDeregister(comms[0], windows[0]), ncclInvalidArgument) << "it is no window any more";
}

TEST_F(GpuCopies, DifferentSizesAreNoWindow) {
  open(2);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < 2; ++r)
    ASSERT_EQ(ncclCommWindowRegister(comms[r], outs[r], kRoom - r * 4096, &outWindows[r], NCCL_WIN_COLL_SYMMETRIC), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  run({Kind::AllGather, 1000, 0}, false);
}

TEST_F(GpuCopies, AUselessWindowOverAGoodOneHidesItFromNobody) {
  open(2);
  registerAll();
  std::vector<ncclWindow_t> later(2);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < 2; ++r)
    ASSERT_EQ(ncclCommWindowRegister(comms[r], outs[r], kRoom - r * 4096, &later[r], NCCL_WIN_COLL_SYMMETRIC), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  run({Kind::AllGather, 1000, 0}, true);
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(ncclCommWindowDeregister(comms[r], later[r]), ncclSuccess);
}

TEST_F(GpuCopies, AGroupThatFailsRegistersNothing) {
  open(2);
  ncclWindow_t never = nullptr;
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(ncclCommWindowRegister(comms[0], outs[0], kRoom, &never, NCCL_WIN_COLL_SYMMETRIC), ncclSuccess);
  EXPECT_EQ(ncclCommWindowRegister(comms[0], static_cast<char*>(outs[0]) + 1, 8, &never, NCCL_WIN_COLL_SYMMETRIC), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  registerAll();  // would wait for the peer's, if that of rank 0 had begun
  run({Kind::AllGather, 1000, 0}, true);
}

TEST_F(GpuCopies, GraphsRunThemAgainAmongOtherCalls) {
  open(3);
  registerAll();
  const Trial t{Kind::AllGather, 5000, 100};
  const Trial other{Kind::AllToAll, 777, 500'003};
  const auto capture = [&](const std::function<void()>& what) {
    std::vector<Graph> graphs(ranks());
    for (const Stream s : streams) EXPECT_EQ(gpus->driver().beginCapture(s), Error::Success);
    what();
    for (size_t r = 0; r < ranks(); ++r) EXPECT_EQ(gpus->driver().endCapture(streams[r], &graphs[r]), Error::Success);
    return graphs;
  };
  const auto graphs = capture([&] { ASSERT_EQ(callAll(t), ncclSuccess) << ncclGetLastError(nullptr); });
  const auto two = capture([&] {
    ASSERT_EQ(callAll(other), ncclSuccess);
    ASSERT_EQ(callAll(t), ncclSuccess);
  });
  const driver::cuda::FakeShape shape = gpus->driver().shape(graphs[0]);
  EXPECT_EQ(shape.works, 2 + ranks()) << "two kernels, and a copy for each peer and this rank";
  EXPECT_FALSE(shape.isChain) << "copies are branches";
  EXPECT_TRUE(shape.isFenced);
  for (size_t salt = 10; salt < 14; ++salt) {
    fill(t, salt);
    for (size_t r = 0; r < ranks(); ++r) {
      const UseGpu use(*gpus, static_cast<int>(r));
      ASSERT_EQ(gpus->driver().launchGraph(salt % 2 == 0 ? graphs[r] : two[r], streams[r]), Error::Success);
    }
    await();
    expectRight(t, salt, format("replay {}", salt));
    run(other, true, salt);
  }
  for (const auto& list : {graphs, two})
    for (const Graph graph : list) EXPECT_EQ(gpus->driver().destroyGraph(graph), Error::Success);
}

TEST_F(GpuCopies, LargePiecesThatAllRanksSendFollowOneAnother) {
  const auto isChain = [&](const Trial& t) {
    std::vector<Graph> graphs(ranks());
    for (const Stream s : streams) EXPECT_EQ(gpus->driver().beginCapture(s), Error::Success);
    EXPECT_EQ(callAll(t), ncclSuccess) << ncclGetLastError(nullptr);
    for (size_t r = 0; r < ranks(); ++r) EXPECT_EQ(gpus->driver().endCapture(streams[r], &graphs[r]), Error::Success);
    const driver::cuda::FakeShape shape = gpus->driver().shape(graphs[0]);
    EXPECT_EQ(shape.works, 2 + ranks() - (t.inPlace || t.kind == Kind::Broadcast ? 1 : 0));
    for (const Graph graph : graphs) EXPECT_EQ(gpus->driver().destroyGraph(graph), Error::Success);
    return shape.isChain;
  };
  room = size_t{7} << 20;
  open(3);
  registerAll();
  constexpr size_t kLarge = size_t{2} << 20;
  EXPECT_TRUE(isChain({Kind::AllGather, kLarge, 0, true}));
  EXPECT_FALSE(isChain({Kind::AllGather, kLarge - 16, 0, true}));
  EXPECT_FALSE(isChain({Kind::AllGather, kLarge, 0, false})) << "the own piece is beside the others";
  EXPECT_FALSE(isChain({Kind::Broadcast, kLarge, 0, true})) << "nobody else sends";
  for (const bool inPlace : {false, true}) run({Kind::AllGather, kLarge + 3, 5, inPlace}, true, 3);
  run({Kind::AllToAll, kLarge + 1, 0}, true, 4);
}

/// Receivers pass on what a root sends once, in several parts, whatever its length and place, eager and in graphs, between other calls.
class GpuRelays : public GpuCopies, public testing::WithParamInterface<std::pair<size_t, size_t>> {
 protected:
  static constexpr size_t kMiB = size_t{1} << 20;
  void relay(const Trial& t, size_t parts, size_t salt) {
    fill(t, salt);
    const auto before = HostKernels::counts();
    ASSERT_EQ(callAll(t), ncclSuccess) << ncclGetLastError(nullptr);
    await();
    expectRight(t, salt, format("{} bytes, {} ranks, root {}", t.bytes, ranks(), t.root));
    EXPECT_EQ(HostKernels::counts().copyStages - before.copyStages, (parts + ranks() - 1) * ranks()) << t.bytes;
  }
};

TEST_P(GpuRelays, LargeBroadcastsArePassedOn) {
  const auto [count, parts] = GetParam();
  const size_t bytes = (count == 3 ? 40 : 16) * kMiB + 77;
  room = bytes + kMiB;
  open(count);
  registerAll();
  for (const bool inPlace : {false, true}) {
    const size_t salt = inPlace ? 2 : 1;
    relay({Kind::Broadcast, bytes, 128 * salt - 1, inPlace, static_cast<int>(salt)}, parts, salt);
    run({Kind::AllGather, 1001, 3, inPlace}, true, salt);
  }
  run({Kind::Broadcast, kMiB, 0, false, 1}, true, 9);
  captureAndReplay({Kind::Broadcast, bytes, 0, true, 0}, false);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuRelays, testing::Values(std::pair<size_t, size_t>{3, 3}, std::pair<size_t, size_t>{4, 3}),
                         [](const auto& how) { return format("R{}", how.param.first); });

// Streams of copies that are part of one capture are nobody else's.
TEST_F(GpuCopies, ACallBesideACaptureIsNotCaptured) {
  open(2);
  registerAll();
  const Trial t{Kind::AllGather, 5000, 0};
  std::vector<Stream> others;
  for (size_t r = 0; r < 2; ++r) {
    const UseGpu use(*gpus, static_cast<int>(r));
    others.push_back(gpus->makeStream());
  }
  for (const Stream s : streams) ASSERT_EQ(gpus->driver().beginCapture(s, driver::cuda::CaptureMode::Relaxed), Error::Success);
  ASSERT_EQ(callAll(t), ncclSuccess);
  std::swap(streams, others);
  fill(t, 3);
  ASSERT_EQ(callAll(t), ncclSuccess) << ncclGetLastError(nullptr);
  await();
  expectRight(t, 3, "beside a capture");
  std::swap(streams, others);
  for (size_t r = 0; r < 2; ++r) {
    Graph graph = nullptr;
    ASSERT_EQ(gpus->driver().endCapture(streams[r], &graph), Error::Success);
    EXPECT_EQ(gpus->driver().shape(graph).works, 4u);
    EXPECT_EQ(gpus->driver().destroyGraph(graph), Error::Success);
    EXPECT_EQ(gpus->driver().streamDestroy(others[r]), Error::Success);
  }
}

TEST_F(GpuCopies, AGraphOutlivesWindowAndCommunicator) {
  open(2);
  registerAll();
  const Trial t{Kind::AllGather, 5000, 0};
  std::vector<Graph> graphs(2);
  for (const Stream s : streams) ASSERT_EQ(gpus->driver().beginCapture(s), Error::Success);
  ASSERT_EQ(callAll(t), ncclSuccess);
  for (size_t r = 0; r < 2; ++r) ASSERT_EQ(gpus->driver().endCapture(streams[r], &graphs[r]), Error::Success);
  fill(t, 5);
  deregisterAll();
  const auto before = comms;
  end();
  comms = before;  // for their number alone
  for (size_t r = 0; r < 2; ++r) {
    const UseGpu use(*gpus, static_cast<int>(r));
    ASSERT_EQ(gpus->driver().launchGraph(graphs[r], streams[r]), Error::Success);
  }
  await();
  expectRight(t, 5, "after the communicator");
  comms.clear();
  for (const Graph graph : graphs) EXPECT_EQ(gpus->driver().destroyGraph(graph), Error::Success);
}

TEST_F(GpuCopies, AGroupMixesThemWithKernelsAndMessages) {
  open(2);
  registerAll();
  const Trial t{Kind::AllGather, 5000, 0};
  fill(t, 9);
  std::vector<std::unique_ptr<GpuInts>> sums;
  for (int r = 0; r < 2; ++r) {
    const UseGpu use(*gpus, r);
    sums.push_back(std::make_unique<GpuInts>(1000));
    sums.push_back(std::make_unique<GpuInts>(1000));
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < 2; ++r) {
    ASSERT_EQ(sum(*sums[2 * r], 1000, comms[r], streams[r]), ncclSuccess);
    ASSERT_EQ(ncclSend(sums[2 * r]->data(), 1000, ncclInt, 1 - static_cast<int>(r), comms[r], streams[r]), ncclSuccess);
    ASSERT_EQ(call(t, r, streams[r]), ncclSuccess);
    ASSERT_EQ(ncclRecv(sums[2 * r + 1]->data(), 1000, ncclInt, 1 - static_cast<int>(r), comms[r], streams[r]), ncclSuccess);
    ASSERT_EQ(sum(*sums[2 * r], 1000, comms[r], streams[r]), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  await();
  expectRight(t, 9, "in a group");
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(sums[2 * r]->data()[999], 4);
    EXPECT_EQ(sums[2 * r + 1]->data()[999], 4) << "messages come last";
  }
}

TEST_F(GpuCopies, ABrokenPromiseIsAnErrorOfBothRanks) {
  open(2);
  registerAll();
  const Trial here{Kind::AllGather, 1000, 0};
  const Trial there{Kind::AllGather, 1000, 512};
  ASSERT_EQ(call(here, 0, streams[0]), ncclSuccess);
  ASSERT_EQ(call(there, 1, streams[1]), ncclSuccess);
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(stateOf(r), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(comms[r])).find("lies elsewhere"), std::string::npos) << ncclGetLastError(comms[r]);
  }
  await();
  end(true);
}

TEST_F(GpuCopies, AWindowOnOneRankAloneIsAnErrorOfBoth) {
  open(2);
  registerAll();
  {
    const UseGpu use(*gpus, 1);
    const GpuInts elsewhere(1000);
    ASSERT_EQ(call({Kind::AllGather, 1000, 0}, 0, streams[0]), ncclSuccess);
    (void)ncclAllGather(ins[1], elsewhere.data(), 1000, ncclInt8, comms[1], streams[1]);  // it may wait for windows of the peer, and hear
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(stateOf(r), ncclInvalidUsage);
      EXPECT_NE(std::string(ncclGetLastError(comms[r])).find("symmetric windows"), std::string::npos) << ncclGetLastError(comms[r]);
    }
    await();
    end(true);
  }
}

TEST_F(GpuCopies, MemoryThatWasFreedUnderAWindowIsAnError) {
  open(2);
  registerAll();
  run({Kind::AllGather, 1000, 0}, true);
  const UseGpu use(*gpus, 0);
  ASSERT_EQ(ncclMemFree(outs[0]), ncclSuccess);
  ASSERT_EQ(ncclMemAlloc(&outs[0], kRoom), ncclSuccess);  // at the same address, if the system likes
  const ncclResult_t result = call({Kind::AllGather, 1000, 0}, 0, streams[0]);
  if (outs[0] == nullptr) return;
  EXPECT_TRUE(result == ncclInvalidUsage || result == ncclSuccess);
  if (result == ncclInvalidUsage) {
    EXPECT_NE(std::string(ncclGetLastError(comms[0])).find("freed"), std::string::npos);
  }
  end(true);
}

TEST_F(GpuCopies, AnAbortEndsTheirKernels) {
  open(2);
  registerAll();
  run({Kind::AllGather, 1000, 0}, true);
  abortWhileRankZeroWaits();
}

TEST_F(GpuCopies, ADeadlineNamesWhoHasNotGivenLeave) {
  const ScopedSetting limit("TUTTI_TIMEOUT_MS", "300");
  open(2);
  registerAll();
  ASSERT_EQ(call({Kind::AllGather, 1000, 0}, 0, streams[0]), ncclSuccess);
  EXPECT_EQ(stateOf(0), ncclRemoteError);
  EXPECT_NE(std::string(ncclGetLastError(comms[0])).find("leave to use the buffers of rank 1"), std::string::npos)
      << ncclGetLastError(comms[0]);
  end(true);
}

/// What its kernels have behind a stage that gave up leaves them no other word: the program hears of the stage, and late as well.
TEST_F(GpuCopies, AStageThatGaveUpIsToldThoughKernelsFollow) {
  const ScopedSetting limit("TUTTI_TIMEOUT_MS", "200");
  open(3);
  registerAll();
  ASSERT_EQ(call({Kind::AllGather, 1000, 0}, 0, streams[0]), ncclSuccess);
  for (int more = 0; more < 3; ++more)
    ASSERT_EQ(ncclAllReduce(ins[0], outs[0], 100, ncclFloat, ncclSum, comms[0], streams[0]), ncclSuccess) << ncclGetLastError(comms[0]);
  {
    const UseGpu use(*gpus, 0);
    synchronize(*gpus, streams[0]);
  }
  EXPECT_EQ(stateOf(0), ncclRemoteError);
  EXPECT_NE(std::string(ncclGetLastError(comms[0])).find("leave to use the buffers of rank 1"), std::string::npos)
      << ncclGetLastError(comms[0]);
  end(true);
}

/// A peer that dies in a call, or before it, is named, and what the others have on their streams ends.
void gatherUntilOneDies(faults::ProcessRanks::Self& self) {
  const ScopedSetting engines("TUTTI_COPY_ENGINES", "1");
  FakeGpus gpus(self.count());
  const UseGpu use(gpus, self.index());
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count(), self.freshId(), self.index()), ncclSuccess) << ncclGetLastError(nullptr);
  void* data = nullptr;
  ASSERT_EQ(ncclMemAlloc(&data, kRoom), ncclSuccess);
  ncclWindow_t window = nullptr;
  ASSERT_EQ(ncclCommWindowRegister(comm, data, kRoom, &window, NCCL_WIN_COLL_SYMMETRIC), ncclSuccess) << ncclGetLastError(comm);
  ASSERT_EQ(ncclAllGather(static_cast<char*>(data) + 1000 * self.index(), data, 1000, ncclInt8, comm, nullptr), ncclSuccess);
  synchronize(gpus);
  self.meet(1);
  if (self.index() == 2) kill(getpid(), SIGKILL);
  for (int calls = 0; calls < 3; ++calls)
    (void)ncclAllGather(static_cast<char*>(data) + 1000 * self.index(), data, 1000, ncclInt8, comm, nullptr);
  EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
  const std::string text = ncclGetLastError(comm);
  EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
  synchronize(gpus);
  EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  self.meet(2, {2});
  EXPECT_EQ(ncclMemFree(data), ncclSuccess);
}

TEST(GpuCopiesProcesses, TheDeathOfAPeerEndsTheStagesOfOthers) {
  faults::ProcessRanks children(3, gatherUntilOneDies);
  children.expectAllWell({2}, 60);
}

/// Of registering and calling; `leastFailing`: calls whose failure the program hears of.
void failEveryDriverCall(size_t leastFailing) {
  const ScopedSetting limit("TUTTI_TIMEOUT_MS", "2000");
  size_t failing = 0;
  for (size_t nth = 1; nth < 1000; ++nth) {
    FakeGpus gpus(3);
    std::vector<ncclComm_t> comms(3);
    std::vector<void*> data(3);
    for (int r = 0; r < 3; ++r) {
      const UseGpu use(gpus, r);
      ASSERT_EQ(ncclMemAlloc(&data[static_cast<size_t>(r)], kRoom), ncclSuccess);
    }
    ASSERT_EQ(ncclCommInitAll(comms.data(), 3, nullptr), ncclSuccess);
    gpus.driver().failAt(nth);
    std::vector<ncclWindow_t> windows(3);
    ncclResult_t result = ncclGroupStart();
    for (size_t r = 0; r < 3; ++r) (void)ncclCommWindowRegister(comms[r], data[r], kRoom, &windows[r], NCCL_WIN_COLL_SYMMETRIC);
    result = ncclGroupEnd();
    for (size_t r = 0; r < 3; ++r) std::memset(data[r], static_cast<int>(r) + 1, 30'000);
    for (int turn = 0; turn < 2 && result == ncclSuccess; ++turn) {
      (void)ncclGroupStart();
      for (size_t r = 0; r < 3 && result == ncclSuccess; ++r)
        result = ncclAllGather(static_cast<char*>(data[r]) + 10'000 * r, data[r], 10'000, ncclInt8, comms[r], nullptr);
      const ncclResult_t ended = ncclGroupEnd();
      if (result == ncclSuccess) result = ended;
    }
    const auto failed = gpus.driver().failed();
    const std::string text = ncclGetLastError(nullptr);
    for (const ncclComm_t comm : comms) EXPECT_EQ(result == ncclSuccess ? ncclCommDestroy(comm) : ncclCommAbort(comm), ncclSuccess);
    gpus.driver().failAt(0);
    for (int r = 0; r < 3; ++r) {
      const UseGpu use(gpus, r);
      synchronize(gpus);
      for (size_t i = 0; result == ncclSuccess && i < 30'000; i += 997)
        ASSERT_EQ(static_cast<char*>(data[static_cast<size_t>(r)])[i], static_cast<char>(i / 10'000 + 1)) << "call " << nth;
    }
    for (void* const memory : data) EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
    EXPECT_FALSE(testing::Test::HasFailure()) << "call " << nth << ": " << (failed ? driver::cuda::symbolOf(*failed) : "none") << ", "
                                              << text;
    if (testing::Test::HasFailure()) return;
    if (!failed) break;
    if (result != ncclSuccess) ++failing;
  }
  EXPECT_GT(failing, leastFailing);
}

TEST(GpuCopiesFail, EveryDriverCallMayFail) {
  const ScopedSetting engines("TUTTI_COPY_ENGINES", "1");
  failEveryDriverCall(20);
}

TEST(GpuCopiesFail, EveryDriverCallOfALittleMayFail) {
  const ScopedSetting policy("NCCL_CTA_POLICY", "2");
  const auto before = HostKernels::counts();
  failEveryDriverCall(5);
  EXPECT_GT(HostKernels::counts().moved, before.moved);
}

}  // namespace
}  // namespace tutti::conformance::copies_test
