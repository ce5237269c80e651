// Captured calls whose ranks, processes of their own, lend each other their buffers: the bits of the contract in every replay, other ways
// where a buffer cannot be lent, and nothing that stays mapped when the graph is gone.
#include <optional>
#include <string>
#include <tuple>

#include "conformance/gpu/lending_rank.h"

namespace tutti::conformance::lent_test {
namespace {

Case caseOf(Kind kind, int ranks, DataType type, uint64_t count, bool inPlace = false) {
  Case c;
  c.kind = kind;
  c.algorithm = kind == Kind::AllReduce ? "twoshot" : "direct";  // whose bits they are
  c.ranks = ranks;
  c.type = type;
  c.count = count;
  c.root = ranks - 1;
  c.inPlace = inPlace;
  c.data = count % 2 == 0 ? Data::Wild : Data::Ordinary;
  return c;
}

/// Offsets of whole vectors, another one on each rank.
Case shifted(Case c, int rank) {
  c.sendOffset = 64 * rank;
  c.recvOffset = 32 * (2 - rank % 3);
  return c;
}

constexpr Kind kKinds[] = {Kind::AllReduce, Kind::ReduceScatter, Kind::AllGather, Kind::AlltoAll,
                           Kind::Broadcast, Kind::Scatter,       Kind::Gather};

bool goesInPlace(Kind kind) { return kind == Kind::AllReduce || kind == Kind::Scatter || kind == Kind::Gather; }

/// Captures it, and replays it. `isLent`: it goes straight to the buffers, or through what the library has; nullopt: as it likes.
void runGraph(LendingRank& rank, const Case& c, std::optional<bool> isLent) {
  const auto before = launches();
  const Graph graph = rank.capture(c);
  const auto after = launches();
  if (isLent.has_value()) {
    EXPECT_EQ(after.first != before.first, *isLent) << describe(c);
    EXPECT_EQ(after.second != before.second, !*isLent) << describe(c);
  }
  for (uint64_t turn = 0; turn < 3; ++turn) ASSERT_NO_FATAL_FAILURE(rank.replay(graph, c, turn));
  rank.destroy(graph);
}

struct Way {
  const char* name;
  Memory memory;
  const char* wish;
  bool isForAll;  ///< the wish
};

class GpuLent : public testing::TestWithParam<std::tuple<int, Way>> {};

TEST_P(GpuLent, EveryReplayHasTheBitsOfTheContract) {
  const auto& [ranks, way] = GetParam();
  const ScopedSetting wish(way.wish, "1");
  ProcessRanks children(ranks, [&way = way](ProcessRanks::Self& self) {
    LendingRank rank(self, way.memory);
    for (const Kind kind : kKinds)
      for (const uint64_t count : {uint64_t{1}, uint64_t{1007}, uint64_t{20'000}})
        for (const bool inPlace : {false, true}) {
          if (inPlace && !goesInPlace(kind)) continue;
          const DataType type = kind == Kind::AllReduce ? DataType::F32 : DataType::F16;
          const bool areForced = way.isForAll || !reduces(kind);
          ASSERT_NO_FATAL_FAILURE(runGraph(rank, shifted(caseOf(kind, self.count(), type, count, inPlace), self.index()),
                                           areForced ? std::optional(true) : std::nullopt));
        }
  });
  children.expectAllWell({}, 120);
}

INSTANTIATE_TEST_SUITE_P(Ways, GpuLent,
                         testing::Combine(testing::Values(2, 3),
                                          testing::Values(Way{"PlainByBlocks", Memory::Plain, "TUTTI_MAPPED", true},
                                                          Way{"PlainByEngines", Memory::Plain, "TUTTI_COPY_ENGINES", false},
                                                          Way{"ExportedByBlocks", Memory::Exported, "TUTTI_MAPPED", true})),
                         [](const auto& made) { return format("{}{}", std::get<1>(made.param).name, std::get<0>(made.param)); });

TEST(GpuLentNot, WhereABufferOfOneRankCannotBe) {
  onRanks(3, Memory::Plain, [](ProcessRanks::Self& self, LendingRank& rank) {
    for (const Kind kind : kKinds) {
      Case c = caseOf(kind, 3, DataType::F32, 5001);
      const int askew = kind == Kind::Gather ? c.root : 1;         // whose output peers write to
      if (self.index() == askew) c.sendOffset = c.recvOffset = 1;  // between two vectors
      ASSERT_NO_FATAL_FAILURE(runGraph(rank, c, false));
      ASSERT_NO_FATAL_FAILURE(runGraph(rank, caseOf(kind, 3, DataType::F32, 5001), true));  // the next may well be
    }
  });
}

TEST(GpuLentNot, WhereTheInputOfOneRankCannotBe) {
  onRanks(3, Memory::Plain, [](ProcessRanks::Self& self, LendingRank& rank) {
    Case c = caseOf(Kind::AllReduce, 3, DataType::F32, 5001);
    if (self.index() == 2) c.sendOffset = 1;
    ASSERT_NO_FATAL_FAILURE(runGraph(rank, c, false));
    ASSERT_NO_FATAL_FAILURE(runGraph(rank, caseOf(Kind::AllReduce, 3, DataType::F32, 5001), true));
  });
}

TEST(GpuLentNot, WhereTheOutputLiesUponTheInput) {
  onRanks(2, Memory::Plain, [](ProcessRanks::Self&, LendingRank& rank) {
    std::byte* const in = rank.in;
    for (const Kind kind : {Kind::AllReduce, Kind::AlltoAll}) {
      rank.in = rank.out + 4096;
      const auto before = launches();
      rank.destroy(rank.capture(caseOf(kind, 2, DataType::F32, 5000)));
      EXPECT_EQ(launches().first, before.first);
    }
    rank.in = in;
  });
}

/// Each rank has a factor of its own, and nobody else's.
TEST(GpuLentNot, WhereEachRankHasAFactor) {
  onRanks(2, Memory::Plain, [](ProcessRanks::Self& self, LendingRank& rank) {
    ncclRedOp_t op{};
    float factor = 1.5F * static_cast<float>(self.index() + 1);
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate, rank.comm), ncclSuccess);
    const auto before = launches();
    const Graph graph =
        rank.capture([&] { ASSERT_EQ(ncclAllReduce(rank.in, rank.out, 5000, ncclFloat, op, rank.comm, rank.stream), ncclSuccess); });
    EXPECT_EQ(launches().first, before.first);
    auto* const in = reinterpret_cast<float*>(rank.in);
    std::fill(in, in + 5000, 2.0F);
    ASSERT_EQ(rank.gpus.driver().launchGraph(graph, rank.stream), Error::Success);
    synchronize(rank.gpus, rank.stream);
    EXPECT_EQ(reinterpret_cast<float*>(rank.out)[4999], 9.0F);
    rank.destroy(graph);
    EXPECT_EQ(ncclRedOpDestroy(op, rank.comm), ncclSuccess);
  });
}

TEST(GpuLentNot, WhereOnlyOneRankIsInPlace) {
  onRanks(2, Memory::Plain, [](ProcessRanks::Self& self, LendingRank& rank) {
    ASSERT_NO_FATAL_FAILURE(runGraph(rank, caseOf(Kind::AllReduce, 2, DataType::F32, 5001, self.index() == 0), false));
  });
}

TEST(GpuLentNot, WhereTheUserForbidsIt) {
  for (const auto& [name, memory, isLent] :
       {std::tuple{"NCCL_GRAPH_REGISTER", Memory::Plain, false}, std::tuple{"NCCL_GRAPH_REGISTER", Memory::Exported, false},
        std::tuple{"NCCL_LEGACY_CUDA_REGISTER", Memory::Plain, false}, std::tuple{"NCCL_LEGACY_CUDA_REGISTER", Memory::Exported, true}}) {
    const ScopedSetting no(name, "0");
    onRanks(2, memory, [isLent = isLent](ProcessRanks::Self&, LendingRank& rank) {
      for (const Kind kind : kKinds) ASSERT_NO_FATAL_FAILURE(runGraph(rank, caseOf(kind, 2, DataType::F32, 5001), isLent));
    });
  }
}

TEST(GpuLentNot, OutsideOfCaptures) {
  onRanks(2, Memory::Plain, [](ProcessRanks::Self&, LendingRank& rank) {
    const Case c = caseOf(Kind::AllReduce, 2, DataType::F32, 5001);
    const auto before = launches();
    ASSERT_EQ(rank.call(c), ncclSuccess);
    synchronize(rank.gpus, rank.stream);
    EXPECT_EQ(launches().first, before.first);
  });
}

/// A few blocks that go straight to the buffers are hardly slower than many that do not.
TEST(GpuLentNot, WhereBlocksCostNothingAndManyAreFaster) {
  constexpr size_t kBytes = size_t{8} << 20;
  for (const bool haveAPrice : {false, true}) {
    const ScopedSetting price("TUTTI_BLOCK_PRICE", haveAPrice ? "3" : "0");
    const auto body = [haveAPrice](ProcessRanks::Self& self, LendingRank& rank) {
      auto* const in = rank.allocate(kBytes);
      auto* const out = rank.allocate(kBytes);
      const auto before = launches();
      const Graph graph = rank.capture([&] {
        ASSERT_EQ(ncclAllReduce(in, out, kBytes / sizeof(float), ncclFloat, ncclSum, rank.comm, rank.stream), ncclSuccess);
      });
      EXPECT_EQ(launches().first != before.first, haveAPrice);
      rank.destroy(graph);
      self.meet(80);
      rank.free(in);
      rank.free(out);
    };
    onRanks(2, Memory::Plain, body, "-1");
  }
}

TEST(GpuLentGroups, CallsOfAGroupAreLentTogether) {
  onRanks(2, Memory::Plain, [](ProcessRanks::Self&, LendingRank& rank) {
    const Case first = caseOf(Kind::AllReduce, 2, DataType::F32, 5000);
    Case second = caseOf(Kind::AllGather, 2, DataType::F32, 3000);
    second.recvOffset = 100'000;
    const auto before = launches();
    const Graph graph = rank.capture([&] {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      ASSERT_EQ(rank.call(first), ncclSuccess);
      ASSERT_EQ(rank.call(second), ncclSuccess);
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(rank.comm);
    });
    EXPECT_GE(launches().first, before.first + 2);
    EXPECT_EQ(launches().second, before.second);
    for (uint64_t turn = 0; turn < 3; ++turn) ASSERT_NO_FATAL_FAILURE(rank.replay(graph, first, turn));
    rank.destroy(graph);
  });
}

/// What the library has mapped of peers' plain memory, once it has looked after graphs that are gone: another capture, of a call whose
/// output it lends.
size_t mappedAfterALook(LendingRank& rank) {
  const Graph graph = rank.capture(caseOf(Kind::AllGather, 2, DataType::F32, 16));
  const size_t mapped = rank.gpus.driver().alive().opened;
  rank.destroy(graph);
  return mapped;
}

TEST(GpuLentEnds, WhatWasLentIsUnmappedWhenItsGraphIsGone) {
  onRanks(2, Memory::Plain, [](ProcessRanks::Self& self, LendingRank& rank) {
    const Case c = caseOf(Kind::AllGather, 2, DataType::F32, 5001);
    const Graph kept = rank.capture(c);
    const Graph gone = rank.capture(caseOf(Kind::AllReduce, 2, DataType::F32, 5001));
    EXPECT_EQ(rank.gpus.driver().alive().opened, 2u) << "the input and the output of the peer, each once";
    rank.destroy(gone);
    EXPECT_EQ(mappedAfterALook(rank), 1u);
    ASSERT_NO_FATAL_FAILURE(rank.replay(kept, c, 1));
    rank.destroy(kept);
    self.meet(1);
    rank.free(rank.out);
    rank.out = rank.allocate();
    EXPECT_EQ(mappedAfterALook(rank), 1u) << "the new output";
  });
}

TEST(GpuLentEnds, OtherCapturesLeaveWhatALiveGraphWasLent) {
  onRanks(2, Memory::Plain, [](ProcessRanks::Self&, LendingRank& rank) {
    const Case c = caseOf(Kind::AllGather, 2, DataType::F32, 5001);
    const Graph kept = rank.capture(c);
    std::byte* const out = std::exchange(rank.out, rank.allocate());
    rank.destroy(rank.capture(c));
    const Graph other = rank.capture(caseOf(Kind::AllGather, 2, DataType::F32, 16));
    EXPECT_EQ(rank.gpus.driver().alive().opened, 2u);
    rank.free(std::exchange(rank.out, out));
    ASSERT_NO_FATAL_FAILURE(rank.replay(kept, c, 1));
    rank.destroy(kept);
    rank.destroy(other);
  });
}

/// Memory that can be exported goes with any call; to let go of plain memory would wait for the GPU.
TEST(GpuLentEnds, EagerCallsLetGo) {
  onRanks(2, Memory::Exported, [](ProcessRanks::Self& self, LendingRank& rank) {
    const Case c = caseOf(Kind::AllReduce, 2, DataType::F32, 5001);
    ASSERT_EQ(rank.call(c), ncclSuccess);
    const size_t before = rank.gpus.driver().alive().mappings;
    const Graph graph = rank.capture(c);
    EXPECT_EQ(rank.gpus.driver().alive().mappings, before + 2);
    rank.destroy(graph);
    rank.gpus.driver().setBusy(true);
    ASSERT_EQ(rank.call(c), ncclSuccess);
    EXPECT_EQ(rank.gpus.driver().alive().mappings, before + 2) << "kernels run";
    rank.gpus.driver().setBusy(false);
    synchronize(rank.gpus, rank.stream);
    self.meet(1);
    ASSERT_EQ(rank.call(c), ncclSuccess);
    EXPECT_EQ(rank.gpus.driver().alive().mappings, before);
    synchronize(rank.gpus, rank.stream);
  });
}

TEST(GpuLentEnds, AfterALaunchThatFailedNothingIsHeld) {
  using driver::cuda::Call;
  for (const Call failing : {Call::userObjectCreate, Call::graphRetainUserObject, Call::graphAddEventRecordNode})
    onRanks(2, Memory::Exported, [failing](ProcessRanks::Self& self, LendingRank& rank) {
      const auto before = rank.gpus.driver().alive();
      const ncclComm_t first = rank.comm;
      ASSERT_EQ(ncclCommInitRank(&rank.comm, 2, self.freshId(), self.index()), ncclSuccess);
      Graph graph = nullptr;
      EXPECT_EQ(rank.gpus.driver().beginCapture(rank.stream), Error::Success);
      rank.gpus.driver().failNext(failing);
      EXPECT_NE(rank.call(caseOf(Kind::AllGather, 2, DataType::F32, 5001)), ncclSuccess);
      rank.gpus.driver().failAt(0);
      (void)rank.gpus.driver().endCapture(rank.stream, &graph);
      if (graph != nullptr) rank.destroy(graph);
      self.meet(1);
      EXPECT_EQ(ncclCommAbort(std::exchange(rank.comm, nullptr)), ncclSuccess);
      for (int stage = 2; stage < 4; ++stage) {  // whoever opens another one looks after what was left
        self.meet(stage);
        ncclComm_t other = nullptr;
        ASSERT_EQ(ncclCommInitRank(&other, 2, self.freshId(), self.index()), ncclSuccess);
        ASSERT_EQ(ncclCommDestroy(other), ncclSuccess);
      }
      rank.comm = first;
      const auto after = rank.gpus.driver().alive();
      EXPECT_EQ(after.handles, before.handles) << static_cast<int>(failing);
      EXPECT_EQ(after.mappings, before.mappings) << static_cast<int>(failing);
      EXPECT_EQ(after.reservations, before.reservations) << static_cast<int>(failing);
    });
}

TEST(GpuLentEnds, AGraphOutlivesItsCommunicator) {
  onRanks(2, Memory::Plain, [](ProcessRanks::Self& self, LendingRank& rank) {
    const Case c = caseOf(Kind::AllReduce, 2, DataType::F32, 5001);
    const Graph graph = rank.capture(c);
    ASSERT_EQ(ncclCommDestroy(std::exchange(rank.comm, nullptr)), ncclSuccess);
    self.meet(1);
    for (uint64_t turn = 0; turn < 3; ++turn) ASSERT_NO_FATAL_FAILURE(rank.replay(graph, c, turn));
    rank.destroy(graph);
    for (int stage = 2; stage < 4; ++stage) {  // whoever opens another one leaves the first, and then finds that all have left it
      self.meet(stage);
      ncclComm_t other = nullptr;
      ASSERT_EQ(ncclCommInitRank(&other, 2, self.freshId(), self.index()), ncclSuccess) << ncclGetLastError(nullptr);
      ASSERT_EQ(ncclCommDestroy(other), ncclSuccess);
    }
  });
}

/// Of several pieces of memory that are mapped in one range of addresses the one that holds the buffer is lent.
TEST(GpuLentMemory, MayLieInAnyMappingOfAReservation) {
  onRanks(2, Memory::Plain, [](ProcessRanks::Self& self, LendingRank& rank) {
    using namespace driver::cuda;
    constexpr size_t kEach = size_t{2} << 20;
    FakeApi& fake = rank.gpus.driver();
    DevicePtr base = 0;
    ASSERT_EQ(fake.memAddressReserve(&base, 4 * kEach, 0, 0, 0), Error::Success);
    AllocationProp prop;
    prop.type = AllocationType::Pinned;
    prop.requested = HandleType::PosixFd;
    prop.location = {LocationType::OnDevice, self.index()};
    AccessDesc access;
    access.location = prop.location;
    access.flags = Access::ReadWrite;
    MemHandle handles[2] = {};
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(fake.memCreate(&handles[i], kEach, &prop, 0), Error::Success);
      ASSERT_EQ(fake.memMap(base + i * kEach, kEach, 0, handles[i], 0), Error::Success);
      ASSERT_EQ(fake.memSetAccess(base + i * kEach, kEach, &access, 1), Error::Success);
    }
    std::byte* const own = std::exchange(rank.out, reinterpret_cast<std::byte*>(base + kEach));
    runGraph(rank, caseOf(Kind::AllGather, 2, DataType::F32, 5001), true);
    rank.out = own;
    self.meet(1);
    rank.destroy(rank.capture(caseOf(Kind::AllGather, 2, DataType::F32, 16)));  // lets go of what was lent before
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(fake.memUnmap(base + i * kEach, kEach), Error::Success);
      ASSERT_EQ(fake.memRelease(handles[i]), Error::Success);
    }
    ASSERT_EQ(fake.memAddressFree(base, 4 * kEach), Error::Success);
  });
}

/// Plain memory of an odd length has smaller pages, and engines are slow there: where one rank has it, they carry it out on none.
TEST(GpuLentMemory, EnginesLeaveFinePagesToOthers) {
  ProcessRanks children(2, [](ProcessRanks::Self& self) {
    LendingRank rank(self, Memory::Plain);
    constexpr uint64_t kLarge = uint64_t{64} << 20;
    std::byte* const out = rank.out;
    for (const bool isFine : {false, true}) {
      rank.out = rank.allocate(2 * kLarge + (isFine && self.index() == 1 ? 8192 : 0));
      Case c = caseOf(Kind::Broadcast, 2, DataType::U8, 2 * kLarge);
      c.root = 0;
      std::byte* const in = std::exchange(rank.in, rank.allocate(2 * kLarge));
      const auto before = HostKernels::counts();
      rank.destroy(rank.capture(c));
      EXPECT_EQ(HostKernels::counts().copyStages != before.copyStages, !isFine);
      rank.free(std::exchange(rank.in, in));
      rank.free(rank.out);
    }
    rank.out = out;
  });
  children.expectAllWell({}, 60);
}

TEST(GpuLentEnds, ARankThatCapturesNothingIsNamed) {
  onRanks(2, Memory::Plain, [](ProcessRanks::Self& self, LendingRank& rank) {
    if (self.index() == 0) {
      ASSERT_EQ(tuttiCommSetTimeout(rank.comm, 300), ncclSuccess);
      EXPECT_EQ(rank.gpus.driver().beginCapture(rank.stream), Error::Success);
      EXPECT_NE(rank.call(caseOf(Kind::AllReduce, 2, DataType::F32, 5001)), ncclSuccess);
      const std::string why = ncclGetLastError(rank.comm);
      EXPECT_NE(why.find("rank 1"), std::string::npos) << why;
      Graph graph = nullptr;
      EXPECT_EQ(rank.gpus.driver().endCapture(rank.stream, &graph), Error::Success);
      rank.destroy(graph);
    }
    self.meet(1);
    ASSERT_EQ(ncclCommAbort(std::exchange(rank.comm, nullptr)), ncclSuccess);
  });
}

}  // namespace
}  // namespace tutti::conformance::lent_test
