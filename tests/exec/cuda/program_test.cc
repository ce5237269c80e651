// The program of a rank as kernels want it: what becomes a step, what does not, and how lanes lie in memory.
#include "exec/cuda/program.h"

#include <gtest/gtest.h>

#include <cstring>

#include "connect/layout.h"
#include "exec/record/catalog.h"

namespace tutti::exec::cuda::program_test {
namespace {

using algo::Kind;

std::vector<ProgramStep> packed(Collective collective, std::string_view name, int32_t ranks, int32_t rank, bool skipsSignals) {
  const record::Algorithm* algorithm = record::findAlgorithm(collective, name);
  EXPECT_NE(algorithm, nullptr);
  const connect::Layout layout = connect::Layout::natural(ranks, 0);
  return packLane(algorithm->record(layout.view(Rank(rank), Rank(0))).lanes[0], Rank(rank), skipsSignals);
}

int countOf(const std::vector<ProgramStep>& steps, Kind kind) {
  int count = 0;
  for (const ProgramStep& s : steps) count += s.kind == kind ? 1 : 0;
  return count;
}

TEST(CudaProgram, FlaggedWindowsHaveNoArrivalsWhereDataTravels) {
  for (int32_t ranks = 1; ranks <= 8; ++ranks) {
    const auto oneShot = packed(Collective::AllReduce, "oneshot", ranks, ranks - 1, true);
    EXPECT_EQ(oneShot.size(), static_cast<size_t>(ranks));
    const auto twoShot = packed(Collective::AllReduce, "twoshot", ranks, 0, true);
    EXPECT_EQ(twoShot.size(), static_cast<size_t>(3 * (ranks - 1) + 1));
    EXPECT_LE(twoShot.size(), static_cast<size_t>(kMostWindowSteps));
    EXPECT_EQ(countOf(twoShot, Kind::Arrive) + countOf(twoShot, Kind::Await), 0);
  }
}

TEST(CudaProgram, WithoutFlagsEveryArrivalStays) {
  const auto steps = packed(Collective::AllReduce, "twoshot", 4, 2, false);
  EXPECT_EQ(countOf(steps, Kind::Store), 6);
  EXPECT_EQ(countOf(steps, Kind::Arrive), 6);
  EXPECT_EQ(countOf(steps, Kind::Await), 6);
}

TEST(CudaProgram, RanksThatExchangeNothingStillArrive) {
  // Of a direct reduce only the root gets data; all others keep their banks in step by empty cells.
  const auto steps = packed(Collective::Reduce, "direct", 4, 3, true);
  EXPECT_EQ(countOf(steps, Kind::Store), 1);
  EXPECT_EQ(countOf(steps, Kind::Arrive), 2);
  EXPECT_GE(countOf(steps, Kind::Await), 1);
}

TEST(CudaProgram, OwnContributionIsASourceAndNoStep) {
  const auto steps = packed(Collective::AllReduce, "twoshot", 4, 2, true);
  for (const ProgramStep& s : steps) {
    if (s.kind == Kind::Store) {
      EXPECT_NE(s.to[0], 2);
    }
    if (s.kind != Kind::LoadReduce) continue;
    EXPECT_EQ(s.srcBuffer, algo::Buffer::In);
    EXPECT_EQ(s.srcChunk, 2);
    EXPECT_EQ(s.dstBuffer, algo::Buffer::Out);
    EXPECT_EQ(s.dstChunk, 2);
  }
}

TEST(CudaProgram, StepsOfPipesAreThoseRecorded) {
  const connect::Layout layout = connect::Layout::natural(8, 0);
  for (const record::Algorithm& algorithm : record::algorithms()) {
    if (algorithm.traits.needs != algo::Needs::Pipe || algorithm.traits.usesNodes) continue;
    const record::Program program = algorithm.record(layout.view(Rank(5), Rank(2)));
    for (const auto& lane : program.lanes) {
      const auto steps = packLane(lane, Rank(5), false);
      ASSERT_EQ(steps.size(), lane.size()) << algorithm.traits.name;
      for (size_t i = 0; i < lane.size(); ++i) {
        ASSERT_EQ(steps[i].kind, lane[i].kind);
        EXPECT_EQ(steps[i].reduce, lane[i].reduce);
        EXPECT_EQ(steps[i].port, lane[i].port);
        EXPECT_EQ(steps[i].lane, lane[i].lane);
        EXPECT_EQ(steps[i].srcChunk, lane[i].src.chunk);
        EXPECT_EQ(steps[i].dstBuffer, lane[i].dst.buffer);
        ASSERT_EQ(steps[i].froms, lane[i].from.count);
        ASSERT_EQ(steps[i].tos, lane[i].to.count);
        for (int32_t k = 0; k < std::min(lane[i].from.count, kMostFan); ++k) EXPECT_EQ(steps[i].from[k], lane[i].from.at(k).value);
        for (int32_t k = 0; k < std::min(lane[i].to.count, kMostFan); ++k) EXPECT_EQ(steps[i].to[k], lane[i].to.at(k).value);
      }
    }
  }
}

TEST(CudaProgram, LanesLieOneAfterTheOther) {
  std::vector<std::vector<ProgramStep>> lanes(3);
  lanes[0].resize(2);
  lanes[0][1].srcChunk = 7;
  lanes[2].resize(5);
  lanes[2][4].round = 1;
  lanes[2][4].dstChunk = 9;
  const PackedProgram all = joinLanes(lanes);
  EXPECT_EQ(all.shape.laneWords, 1u + 5 * 7);
  ASSERT_EQ(all.words.size(), 3u * all.shape.laneWords);
  const auto headOf = [&](size_t lane) {
    ProgramHead head;
    std::memcpy(&head, all.words.data() + lane * all.shape.laneWords, sizeof head);
    return head;
  };
  const auto stepOf = [&](size_t lane, size_t i) {
    ProgramStep step;
    std::memcpy(&step, all.words.data() + lane * all.shape.laneWords + 1 + i * sizeof step / 8, sizeof step);
    return step;
  };
  EXPECT_EQ(headOf(0).steps, 2);
  EXPECT_EQ(headOf(0).rounds, 1);
  EXPECT_EQ(headOf(1).steps, 0);
  EXPECT_EQ(headOf(2).steps, 5);
  EXPECT_EQ(headOf(2).rounds, 2);
  EXPECT_EQ(stepOf(0, 1).srcChunk, 7);
  EXPECT_EQ(stepOf(2, 4).dstChunk, 9);
}

}  // namespace
}  // namespace tutti::exec::cuda::program_test
