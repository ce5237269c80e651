// All-reduce and reduce-scatter on buffers in symmetric windows, combined where they lie: the bits of the contract for every type and
// operation, on all ranks alike, and other ways where that is not promised or not possible. By blocks alone, and carried by engines.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/gpu/faults.h"
#include "conformance/reference.h"
#include "core/format.h"
#include "exec/cuda/host_kernels.h"

namespace tutti::conformance::mapped_test {
namespace {

using driver::cuda::Error;
using driver::cuda::Graph;
using driver::cuda::Stream;
using exec::cuda::HostKernels;
using faults::kSlow;

constexpr size_t kRoom = size_t{4} << 20;
constexpr auto kPoison = std::byte{0xa5};

/// Ranks of this thread with a window for inputs and one for outputs each.
class GpuMapped : public testing::Test {
 protected:
  void open(int ranks, const char* mapped = "1") {
    wish_ = std::make_unique<ScopedSetting>("TUTTI_MAPPED", mapped);
    gpus = std::make_unique<FakeGpus>(ranks);
    comms.resize(static_cast<size_t>(ranks));
    ASSERT_EQ(ncclCommInitAll(comms.data(), ranks, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
    for (int r = 0; r < ranks; ++r) {
      const UseGpu use(*gpus, r);
      streams.push_back(gpus->makeStream());
      for (auto* list : {&ins, &outs}) {
        list->push_back(nullptr);
        ASSERT_EQ(ncclMemAlloc(&list->back(), room), ncclSuccess);
      }
    }
    inWindows.resize(comms.size());
    outWindows.resize(comms.size());
  }
  size_t room = kRoom;  ///< of each buffer
  void registerInputs() { registerThem(ins, inWindows); }
  void registerOutputs() { registerThem(outs, outWindows); }
  void TearDown() override {
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
    for (size_t r = 0; r < streams.size(); ++r) {
      const UseGpu use(*gpus, static_cast<int>(r));
      synchronize(*gpus, streams[r]);
      EXPECT_EQ(gpus->driver().streamDestroy(streams[r]), Error::Success);
    }
    for (const auto* list : {&ins, &outs})
      for (void* const memory : *list) EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
    gpus.reset();
    wish_.reset();
  }

  static Case caseOf(Kind kind, int ranks, DataType type, int operation, uint64_t count, bool inPlace = false) {
    Case c;
    c.kind = kind;
    c.algorithm = kind == Kind::AllReduce ? "twoshot" : "direct";  // whose bits they are
    c.ranks = ranks;
    c.type = type;
    c.operation = operation;
    c.count = count;
    c.inPlace = inPlace;
    c.seed = count + static_cast<uint64_t>(operation) * 1000 + static_cast<uint64_t>(type);
    c.data = count % 2 == 0 ? Data::Wild : Data::Ordinary;
    return c;
  }
  std::byte* in(const Case& c, int r) const {
    if (c.inPlace && c.kind == Kind::AllReduce) return out(c, r);
    return static_cast<std::byte*>(ins[static_cast<size_t>(r)]) + static_cast<size_t>(c.sendOffset) * sizeOf(c.type);
  }
  std::byte* out(const Case& c, int r) const {
    if (c.inPlace && c.kind == Kind::ReduceScatter) return in(c, r) + static_cast<size_t>(r) * c.count * sizeOf(c.type);
    return static_cast<std::byte*>(outs[static_cast<size_t>(r)]) + static_cast<size_t>(c.recvOffset) * sizeOf(c.type);
  }
  void fill(const Case& c) {
    inputs.clear();
    for (int r = 0; r < c.ranks; ++r) {
      inputs.push_back(makeInput(c, r));
      std::memset(ins[static_cast<size_t>(r)], static_cast<int>(kPoison), room);
      std::memset(outs[static_cast<size_t>(r)], static_cast<int>(kPoison), room);
      std::memcpy(in(c, r), inputs.back().data(), inputs.back().size());
    }
  }
  ncclResult_t callAll(const Case& c, const std::vector<ncclRedOp_t>& ops = {}) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int r = 0; r < c.ranks; ++r) {
      const auto at = static_cast<size_t>(r);
      const auto type = static_cast<ncclDataType_t>(c.type);
      const auto op = ops.empty() ? static_cast<ncclRedOp_t>(c.operation) : ops[at];
      EXPECT_EQ(c.kind == Kind::AllReduce ? ncclAllReduce(in(c, r), out(c, r), c.count, type, op, comms[at], streams[at])
                                          : ncclReduceScatter(in(c, r), out(c, r), c.count, type, op, comms[at], streams[at]),
                ncclSuccess)
          << ncclGetLastError(comms[at]);
    }
    return ncclGroupEnd();
  }
  void await() {
    for (size_t r = 0; r < comms.size(); ++r) {
      const UseGpu use(*gpus, static_cast<int>(r));
      synchronize(*gpus, streams[r]);
    }
  }
  void expectRight(const Case& c, const std::string& when = "") {
    const auto expected = expectedOutput(c, inputs);
    for (int r = 0; r < c.ranks; ++r) {
      const auto at = static_cast<size_t>(r);
      ASSERT_EQ(firstDifference(c, out(c, r), expected[at]), "") << describe(c) << ", rank " << r << when;
      const std::byte* const end = out(c, r) + expected[at].size();
      if (!c.inPlace) {
        ASSERT_EQ(std::memcmp(in(c, r), inputs[at].data(), inputs[at].size()), 0) << describe(c) << ": the input was changed";
        ASSERT_TRUE(std::all_of(end, end + 256, [](std::byte b) { return b == kPoison; })) << describe(c) << ", rank " << r;
        ASSERT_TRUE(std::all_of(static_cast<std::byte*>(outs[at]), out(c, r), [](std::byte b) { return b == kPoison; })) << describe(c);
      }
    }
  }
  /// Runs it once; `isMapped`: blocks combine where it lies.
  void run(const Case& c, bool isMapped = true) {
    fill(c);
    const auto before = HostKernels::counts();
    ASSERT_EQ(callAll(c), ncclSuccess) << describe(c) << ": " << ncclGetLastError(nullptr);
    await();
    const auto after = HostKernels::counts();
    EXPECT_EQ(after.mapped - before.mapped, isMapped ? comms.size() : 0) << describe(c);
    EXPECT_EQ(after.copyStages, before.copyStages) << describe(c);
    EXPECT_EQ(after.launches != before.launches, !isMapped) << describe(c);
    if (!isMapped) return;
    ASSERT_NO_FATAL_FAILURE(expectRight(c));
  }

  std::vector<Graph> capture(const Case& c) {
    std::vector<Graph> graphs(streams.size());
    for (const Stream s : streams) EXPECT_EQ(gpus->driver().beginCapture(s), Error::Success);
    EXPECT_EQ(callAll(c), ncclSuccess) << ncclGetLastError(nullptr);
    for (size_t r = 0; r < streams.size(); ++r) EXPECT_EQ(gpus->driver().endCapture(streams[r], &graphs[r]), Error::Success);
    return graphs;
  }
  /// With other data each turn.
  void replay(const std::vector<Graph>& graphs, Case c, uint64_t turn) {
    c.seed = turn + 77;
    fill(c);
    for (size_t r = 0; r < streams.size(); ++r) {
      const UseGpu use(*gpus, static_cast<int>(r));
      ASSERT_EQ(gpus->driver().launchGraph(graphs[r], streams[r]), Error::Success);
    }
    await();
    expectRight(c, format(", replay {}", turn));
  }
  void destroy(const std::vector<Graph>& graphs) {
    for (const Graph graph : graphs) EXPECT_EQ(gpus->driver().destroyGraph(graph), Error::Success);
  }

  std::unique_ptr<FakeGpus> gpus;
  std::vector<ncclComm_t> comms;
  std::vector<Stream> streams;
  std::vector<void*> ins;
  std::vector<void*> outs;
  std::vector<ncclWindow_t> inWindows;
  std::vector<ncclWindow_t> outWindows;
  std::vector<Contents> inputs;

 private:
  void registerThem(const std::vector<void*>& memory, std::vector<ncclWindow_t>& windows) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t r = 0; r < comms.size(); ++r)
      ASSERT_EQ(ncclCommWindowRegister(comms[r], memory[r], room, &windows[r], NCCL_WIN_COLL_SYMMETRIC), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  }
  std::unique_ptr<ScopedSetting> wish_;
};

class GpuMappedOfRanks : public GpuMapped, public testing::WithParamInterface<int> {};

TEST_P(GpuMappedOfRanks, HasTheBitsOfTheContract) {
  const int ranks = GetParam();
  open(ranks);
  registerInputs();
  registerOutputs();
  for (const Kind kind : {Kind::AllReduce, Kind::ReduceScatter})
    for (int type = 0; type < kNumDataTypes; ++type)
      for (int operation = 0; operation <= kAvg; ++operation)
        for (const uint64_t count : {uint64_t{1}, uint64_t{37}, uint64_t{9002}}) {
          const bool inPlace = (static_cast<uint64_t>(type + operation) + count) % 3 == 0;
          Case c = caseOf(kind, ranks, static_cast<DataType>(type), operation, count, inPlace);
          c.sendOffset = operation;
          c.recvOffset = inPlace ? operation : 2 * operation;
          ASSERT_NO_FATAL_FAILURE(run(c));
        }
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuMappedOfRanks, testing::Values(2, 3, 8), [](const auto& ranks) { return format("R{}", ranks.param); });

TEST_F(GpuMapped, AllReduceWantsBothWindowsAndReduceScatterThatOfItsInput) {
  open(2);
  run(caseOf(Kind::AllReduce, 2, DataType::F32, ncclSum, 5000), false);
  registerInputs();
  run(caseOf(Kind::AllReduce, 2, DataType::F32, ncclSum, 5000), false);
  run(caseOf(Kind::ReduceScatter, 2, DataType::F32, ncclSum, 5000));
  registerOutputs();
  run(caseOf(Kind::AllReduce, 2, DataType::F32, ncclSum, 5000));
}

/// Each rank has a factor of its own, and nobody else's.
TEST_F(GpuMapped, PreMultipliedSumsGoAnotherWay) {
  open(2);
  registerInputs();
  registerOutputs();
  const Case c = caseOf(Kind::AllReduce, 2, DataType::F32, kPreMulHost, 5001);
  fill(c);
  std::vector<ncclRedOp_t> ops(2);
  for (int r = 0; r < 2; ++r) {
    uint64_t scalar = scalarOf(c, r);
    ASSERT_EQ(
        ncclRedOpCreatePreMulSum(&ops[static_cast<size_t>(r)], &scalar, ncclFloat, ncclScalarHostImmediate, comms[static_cast<size_t>(r)]),
        ncclSuccess);
  }
  const auto before = HostKernels::counts();
  ASSERT_EQ(callAll(c, ops), ncclSuccess);
  await();
  EXPECT_EQ(HostKernels::counts().mapped, before.mapped);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(checkPrecise(c, inputs, r, Contents(out(c, r), out(c, r) + c.count * sizeof(float))), "");
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(ncclRedOpDestroy(ops[r], comms[r]), ncclSuccess);
}

TEST_F(GpuMapped, AnOutputUponTheInputIsLeftToOthers) {
  open(2);
  registerInputs();
  const auto before = HostKernels::counts();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < 2; ++r)
    ASSERT_EQ(ncclAllReduce(ins[r], static_cast<float*>(ins[r]) + 64, 1000, ncclFloat, ncclSum, comms[r], streams[r]), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  await();
  EXPECT_EQ(HostKernels::counts().mapped, before.mapped);
}

TEST_F(GpuMapped, OnlyWhereItPaysUnlessAskedFor) {
  open(2, "-1");
  registerInputs();
  registerOutputs();
  run(caseOf(Kind::AllReduce, 2, DataType::F32, ncclSum, 100), false);
  char text[8192] = {};
  ASSERT_EQ(tuttiExplain(comms[0], "all_reduce", size_t{1} << 26, ncclFloat, ncclSum, 0, text, sizeof text, nullptr), ncclSuccess);
  EXPECT_NE(std::string(text).find("\"mapped\""), std::string::npos) << text;
  EXPECT_NE(std::string(text).find("taken for buffers in windows"), std::string::npos) << text;
  ASSERT_EQ(tuttiExplain(comms[0], "all_reduce", 100, ncclFloat, ncclSum, 0, text, sizeof text, nullptr), ncclSuccess);
  const std::string all(text);
  const size_t mapped = all.find("\"mapped\"");
  ASSERT_NE(mapped, std::string::npos) << text;
  EXPECT_LT(all.find("slower by", mapped), all.find('}', mapped)) << text;
}

TEST_F(GpuMapped, ForbiddenItIsNotTaken) {
  open(2, "0");
  registerInputs();
  registerOutputs();
  run(caseOf(Kind::AllReduce, 2, DataType::F32, ncclSum, 100'000), false);
}

TEST_F(GpuMapped, FewBlocksDoIt) {
  open(2);
  registerInputs();
  registerOutputs();
  run(caseOf(Kind::AllReduce, 2, DataType::F32, ncclSum, 1));
  EXPECT_EQ(HostKernels::counts().mappedBlocks, 1);
  run(caseOf(Kind::AllReduce, 2, DataType::F32, ncclSum, 400'001));
  EXPECT_EQ(HostKernels::counts().mappedBlocks, 12);
}

TEST_F(GpuMapped, BoundsOfCtasHold) {
  const ScopedSetting most("NCCL_MAX_CTAS", "3");
  open(2);
  registerInputs();
  registerOutputs();
  run(caseOf(Kind::AllReduce, 2, DataType::F32, ncclSum, 400'001));
  EXPECT_EQ(HostKernels::counts().mappedBlocks, 3);
}

TEST_F(GpuMapped, MoreBlocksWhereTheUserWantsThem) {
  const ScopedSetting least("NCCL_MIN_CTAS", "20");
  open(2);
  registerInputs();
  registerOutputs();
  run(caseOf(Kind::ReduceScatter, 2, DataType::F32, ncclSum, 200'001));
  EXPECT_EQ(HostKernels::counts().mappedBlocks, 20);
}

/// A communicator that shares its GPUs with others of the same job leaves them room: blocks wait for the first one.
TEST_F(GpuMapped, SeveralRanksOfAGpuFitOntoIt) {
  const ScopedSetting shared("TUTTI_MULTI_RANK_GPU", "1");
  const ScopedSetting least("NCCL_MIN_CTAS", "64");
  open(8);
  registerInputs();
  registerOutputs();
  run(caseOf(Kind::ReduceScatter, 8, DataType::I8, ncclSum, 400'000));  // for 25 blocks each
  EXPECT_LE(HostKernels::counts().mappedBlocks, 132 / 8);
}

TEST_F(GpuMapped, GraphsRunItAgain) {
  open(3);
  registerInputs();
  registerOutputs();
  const Case c = caseOf(Kind::AllReduce, 3, DataType::F32, ncclSum, 50'001);
  const auto graphs = capture(c);
  EXPECT_EQ(gpus->driver().shape(graphs[0]).works, 1u);
  for (uint64_t turn = 0; turn < 3; ++turn) {
    ASSERT_NO_FATAL_FAILURE(replay(graphs, c, turn));
    ASSERT_NO_FATAL_FAILURE(run(c));
  }
  destroy(graphs);
}

/// Of two ranks, one has its output elsewhere than the promise says.
TEST_F(GpuMapped, ABrokenPromiseEndsTheCommunicator) {
  open(2);
  registerInputs();
  registerOutputs();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < 2; ++r)
    ASSERT_EQ(ncclAllReduce(ins[r], static_cast<float*>(outs[r]) + 64 * r, 1000, ncclFloat, ncclSum, comms[r], streams[r]), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  for (const ncclComm_t comm : comms) EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclInvalidUsage) << ncclGetLastError(comm);
  EXPECT_NE(std::string(ncclGetLastError(comms[0])).find("promises the same offset"), std::string::npos) << ncclGetLastError(comms[0]);
  await();
}

/// One rank's buffers are in windows, as far as it knows, and the other's are elsewhere: signatures tell.
TEST_F(GpuMapped, RanksThatGoDifferentWaysNotice) {
  open(2);
  registerInputs();
  registerOutputs();
  std::vector<void*> other(2);
  for (int r = 0; r < 2; ++r) {
    const UseGpu use(*gpus, r);
    ASSERT_EQ(ncclMemAlloc(&other[static_cast<size_t>(r)], kRoom), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < 2; ++r)
    ASSERT_EQ(ncclAllReduce(r == 0 ? ins[0] : other[1], outs[r], 1000, ncclFloat, ncclSum, comms[r], streams[r]), ncclSuccess);
  (void)ncclGroupEnd();
  for (const ncclComm_t comm : comms) EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclInvalidUsage) << ncclGetLastError(comm);
  EXPECT_NE(std::string(ncclGetLastError(comms[0])).find("in symmetric windows"), std::string::npos) << ncclGetLastError(comms[0]);
  await();
  for (void* const memory : other) EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
}

/// Engines bring contributions and results wherever they can.
class GpuCarried : public GpuMapped {
 protected:
  void openCarried(int ranks) {
    engines_ = std::make_unique<ScopedSetting>("TUTTI_COPY_ENGINES", "1");
    open(ranks);
    registerInputs();
    registerOutputs();
  }
  void TearDown() override {
    GpuMapped::TearDown();
    engines_.reset();
  }
  /// Runs it once, in so many parts; `blocks`: of the kernels that combine, 0 at most as many as the share is worth.
  void carry(const Case& c, int32_t blocks = 0, uint64_t parts = 2) {
    fill(c);
    const auto before = HostKernels::counts();
    ASSERT_EQ(callAll(c), ncclSuccess) << describe(c) << ": " << ncclGetLastError(nullptr);
    await();
    const auto after = HostKernels::counts();
    const uint64_t rest = c.count * sizeOf(c.type) % (comms.size() * 128);
    EXPECT_EQ(after.copyStages - before.copyStages, (parts + 3) * comms.size()) << describe(c);
    EXPECT_EQ(after.mapped - before.mapped, parts * comms.size() + (rest == 0 ? 0 : 1)) << describe(c);
    EXPECT_EQ(after.launches, before.launches) << describe(c);
    const uint64_t part = c.count * sizeOf(c.type) / comms.size() / 128 * 128 / parts;
    const auto useful = static_cast<int32_t>(std::min<uint64_t>(part / 16384 + 1, 12));
    EXPECT_LE(after.mappedBlocks, useful) << describe(c);
    if (blocks != 0) {
      EXPECT_EQ(after.mappedBlocks, blocks) << describe(c);
    }
    ASSERT_NO_FATAL_FAILURE(expectRight(c));
  }

 private:
  std::unique_ptr<ScopedSetting> engines_;
};
class GpuCarriedOfRanks : public GpuCarried, public testing::WithParamInterface<int> {};

TEST_P(GpuCarriedOfRanks, HasTheBitsOfTheContract) {
  const int ranks = GetParam();
  openCarried(ranks);
  for (int type = 0; type < kNumDataTypes; ++type)
    for (int operation = 0; operation <= kAvg; ++operation) {
      const uint64_t line = 128 / sizeOf(static_cast<DataType>(type));
      for (const uint64_t count : {static_cast<uint64_t>(ranks) * line, static_cast<uint64_t>(ranks) * line + 1, uint64_t{9002}}) {
        Case c = caseOf(Kind::AllReduce, ranks, static_cast<DataType>(type), operation, count);
        c.sendOffset = operation;
        c.recvOffset = 2 * operation;
        ASSERT_NO_FATAL_FAILURE(carry(c));
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuCarriedOfRanks, testing::Values(2, 3, 4, 8),
                         [](const auto& ranks) { return format("R{}", ranks.param); });

TEST_F(GpuCarried, InPlaceOrWithLessThanALineForEachBlocksDoItAlone) {
  openCarried(3);
  run(caseOf(Kind::AllReduce, 3, DataType::F32, ncclSum, 20'001, true));
  run(caseOf(Kind::AllReduce, 3, DataType::F32, ncclSum, 95));
  carry(caseOf(Kind::AllReduce, 3, DataType::F32, ncclSum, 96));
  run(caseOf(Kind::ReduceScatter, 3, DataType::F32, ncclSum, 20'001));
  carry(caseOf(Kind::AllReduce, 3, DataType::F32, ncclSum, 20'001));
}

/// What combines beside copies is waited for before others build on it, or write over what it reads.
TEST_F(GpuCarried, NothingGoesAheadOfASlowCombination) {
  openCarried(3);
  HostKernels::delayAlone(20);
  for (const uint64_t count : {uint64_t{96}, uint64_t{50'001}}) carry(caseOf(Kind::AllReduce, 3, DataType::I32, ncclSum, count));
  HostKernels::delayAlone(0);
}

/// One block takes longer to combine a share than engines to carry it, so little may be left when they are done.
TEST_F(GpuCarried, WhatIsCombinedForLongGoesInMoreParts) {
  const ScopedSetting most("NCCL_MAX_CTAS", "1");
  room = size_t{56} << 20;
  openCarried(2);
  HostKernels::delayAlone(5);
  carry(caseOf(Kind::AllReduce, 2, DataType::F32, ncclSum, 7'000'003), 1, 3);
  carry(caseOf(Kind::AllReduce, 2, DataType::I32, ncclSum, 13'000'001), 1, 4);
  const Case c = caseOf(Kind::AllReduce, 2, DataType::F32, ncclSum, 7'000'005);
  const auto graphs = capture(c);
  EXPECT_EQ(gpus->driver().shape(graphs[0]).works, 6u + 2 * 3 + 3) << "six meetings, three parts both ways, three kernels that combine";
  replay(graphs, c, 0);
  destroy(graphs);
  HostKernels::delayAlone(0);
}

TEST_F(GpuCarried, InputAndOutputMayLieInOneWindow) {
  openCarried(3);
  constexpr size_t kCount = 30'007;
  for (size_t r = 0; r < 3; ++r)
    for (size_t i = 0; i < kCount; ++i) static_cast<int32_t*>(outs[r])[i] = static_cast<int32_t>((r + 1) * 1000 + i);
  const auto before = HostKernels::counts();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < 3; ++r)
    ASSERT_EQ(ncclAllReduce(outs[r], static_cast<int32_t*>(outs[r]) + 40'001, kCount, ncclInt32, ncclSum, comms[r], streams[r]),
              ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  await();
  EXPECT_EQ(HostKernels::counts().copyStages - before.copyStages, 15u);
  for (size_t r = 0; r < 3; ++r)
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(static_cast<const int32_t*>(outs[r])[i], static_cast<int32_t>((r + 1) * 1000 + i));
      ASSERT_EQ(static_cast<const int32_t*>(outs[r])[40'001 + i], static_cast<int32_t>(6000 + 3 * i)) << r << " " << i;
    }
}

/// Two ranks have given up when the third one comes: what they leave behind is not what it would build on.
TEST_F(GpuCarried, WhoComesLateDoesNotGoOnWithWhatWasGivenUp) {
  const ScopedSetting limit("TUTTI_TIMEOUT_MS", "300");
  openCarried(3);
  std::vector<ncclComm_t> others(3);
  ASSERT_EQ(ncclCommInitAll(others.data(), 3, nullptr), ncclSuccess);
  const Case c = caseOf(Kind::AllReduce, 3, DataType::F32, ncclSum, 50'001);
  const auto call = [&](size_t r, ncclComm_t comm, const void* from, void* to, size_t count) {
    return ncclAllReduce(from, to, count, ncclFloat, ncclSum, comm, streams[r]);
  };
  std::vector<void*> small(3);
  for (int r = 0; r < 3; ++r) {
    const UseGpu use(*gpus, r);
    ASSERT_EQ(ncclMemAlloc(&small[static_cast<size_t>(r)], 64), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);  // all connect
  for (size_t r = 0; r < 3; ++r) ASSERT_EQ(call(r, others[r], small[r], small[r], 1), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  run(caseOf(Kind::AllReduce, 3, DataType::F32, ncclSum, 777, true));
  fill(c);
  ASSERT_EQ(call(0, comms[0], in(c, 0), out(c, 0), c.count), ncclSuccess);
  ASSERT_EQ(call(1, comms[1], in(c, 1), out(c, 1), c.count), ncclSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  ASSERT_EQ(call(2, others[2], small[2], small[2], 1), ncclSuccess);  // waits for others that never come, for 300 ms
  ASSERT_EQ(call(2, comms[2], in(c, 2), out(c, 2), c.count), ncclSuccess);
  for (const ncclComm_t comm : comms) EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError) << ncclGetLastError(comm);
  await();
  const size_t share = 50'001 * sizeof(float) / 3 / 128 * 128;
  const std::byte* const own = out(c, 2) + 2 * share;
  EXPECT_TRUE(std::all_of(own, own + share, [](std::byte b) { return b == kPoison; })) << "combined what nobody vouches for";
  for (const ncclComm_t comm : others) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  for (void* const memory : small) EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
}

TEST_F(GpuCarried, BoundsOfCtasHold) {
  const ScopedSetting most("NCCL_MAX_CTAS", "3");
  openCarried(2);
  carry(caseOf(Kind::AllReduce, 2, DataType::F32, ncclSum, 400'001), 3);
}

TEST_F(GpuCarried, GraphsRunItAgainBetweenOtherCalls) {
  openCarried(3);
  const Case c = caseOf(Kind::AllReduce, 3, DataType::F32, ncclSum, 50'001);
  const auto graphs = capture(c);
  const driver::cuda::FakeShape shape = gpus->driver().shape(graphs[0]);
  EXPECT_EQ(shape.works, 5u + 2 * 2 * 2 + 2) << "five meetings, two parts to two peers in both ways, two kernels that combine";
  EXPECT_FALSE(shape.isChain) << "they combine beside copies";
  EXPECT_TRUE(shape.isFenced);
  for (uint64_t turn = 0; turn < 3; ++turn) {
    ASSERT_NO_FATAL_FAILURE(replay(graphs, c, turn));
    ASSERT_NO_FATAL_FAILURE(run(caseOf(Kind::AllReduce, 3, DataType::F32, ncclSum, 777, true)));  // counts are shared
    ASSERT_NO_FATAL_FAILURE(carry(c));
  }
  destroy(graphs);
}

TEST_F(GpuCarried, OnlyWhereItPaysUnlessAskedFor) {
  const auto wayOf = [&](size_t count) {
    char text[8192] = {};
    EXPECT_EQ(tuttiExplain(comms[0], "all_reduce", count, ncclFloat, ncclSum, 0, text, sizeof text, nullptr), ncclSuccess);
    const std::string all(text);
    return all.find("\"carried\"") != std::string::npos ? "carried" : all.find("\"mapped\"") != std::string::npos ? "mapped" : "neither";
  };
  open(2, "-1");
  registerInputs();
  registerOutputs();
  EXPECT_STREQ(wayOf(size_t{1} << 28), "carried");
  EXPECT_STREQ(wayOf(size_t{1} << 24), "mapped");
  for (ncclComm_t& comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  const ScopedSetting never("TUTTI_COPY_ENGINES", "0");
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
  EXPECT_STREQ(wayOf(size_t{1} << 28), "mapped");
}

/// What one rank has in place it does by blocks, and the other, who has it not, would wait for engines.
TEST_F(GpuCarried, InPlaceOnOneRankAloneEndsTheCommunicator) {
  openCarried(2);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < 2; ++r)
    ASSERT_EQ(ncclAllReduce(r == 0 ? outs[r] : ins[r], outs[r], 1000, ncclFloat, ncclSum, comms[r], streams[r]), ncclSuccess);
  (void)ncclGroupEnd();
  for (const ncclComm_t comm : comms) EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclInvalidUsage) << ncclGetLastError(comm);
  await();
}

}  // namespace
}  // namespace tutti::conformance::mapped_test
