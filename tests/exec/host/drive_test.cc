#include "exec/host/drive.h"

#include <gtest/gtest.h>

#include <thread>

#include "planned_ranks.h"

namespace tutti::exec::host::drive_test {
namespace {

struct Comm {
  explicit Comm(int32_t ranks, const plan::Settings& settings = {}) : planned(ranks, settings) {
    for (int32_t r = 0; r < ranks; ++r) turns.push_back(planned.makeTurn(r));
  }
  /// One call of one rank.
  std::unique_ptr<Work> work(int32_t rank, uint64_t ticket, const plan::Shape& shape, const void* in, void* out) {
    auto work = std::make_unique<Work>(turns[static_cast<size_t>(rank)]);
    work->reset(ticket);
    work->beginChain();
    work->add(planned.call(rank, shape, in, out));
    return work;
  }

  PlannedRanks planned;
  std::vector<std::shared_ptr<Turn>> turns;
};

TEST(Drive, NothingIsDoneAtOnce) { EXPECT_TRUE(drive(std::vector<std::unique_ptr<Work>>(), 0).ok()); }

TEST(Drive, OneThreadBringsAllRanksToTheirEnd) {
  Comm comm(4, settingsOf(2, 64, "ring"));
  std::vector<std::vector<int32_t>> buffers;
  std::vector<std::unique_ptr<Work>> works;
  for (int32_t r = 0; r < 4; ++r) {
    buffers.push_back(numbers(r, 5000));
    works.push_back(comm.work(r, 0, shapeOf(Collective::AllReduce, DataType::I32, 5000), buffers.back().data(), buffers.back().data()));
  }
  EXPECT_TRUE(drive(works, 10).ok());
  for (const auto& buffer : buffers) EXPECT_EQ(buffer, sumOfNumbers(4, 5000));
}

TEST(Drive, EveryRankOnItsOwnThread) {
  for (const char* algorithm : {"ring", "tree", "oneshot"}) {
    constexpr int32_t kRanks = 3;
    Comm comm(kRanks, settingsOf(2, 256, algorithm));
    std::vector<std::thread> threads;
    for (int32_t r = 0; r < kRanks; ++r) {
      threads.emplace_back([&comm, r] {
        for (uint64_t call = 0; call < 50; ++call) {
          std::vector<int32_t> buffer = numbers(r, 1000 + call);
          std::vector<std::unique_ptr<Work>> works;
          works.push_back(comm.work(r, call, shapeOf(Collective::AllReduce, DataType::I32, 1000 + call), buffer.data(), buffer.data()));
          ASSERT_TRUE(drive(works, 20).ok());
          ASSERT_EQ(buffer, sumOfNumbers(kRanks, 1000 + call));
        }
      });
    }
    for (auto& t : threads) t.join();
  }
}

TEST(Drive, WorksOfOneCommunicatorMayBeGivenInAnyOrder) {
  Comm comm(1);
  std::vector<int32_t> a = numbers(0, 8);
  std::vector<int32_t> b(8);
  std::vector<int32_t> c(8);
  std::vector<std::unique_ptr<Work>> works;
  works.push_back(comm.work(0, 1, shapeOf(Collective::AllReduce, DataType::I32, 8), b.data(), c.data()));
  works.push_back(comm.work(0, 0, shapeOf(Collective::AllReduce, DataType::I32, 8), a.data(), b.data()));
  EXPECT_TRUE(drive(works, 0).ok());
  EXPECT_EQ(c, a) << "ticket 0 first";
}

TEST(Drive, ReturnsTheFirstErrorInTheOrderGivenAndFinishesTheRest) {
  Comm broken(2);
  Comm sound(1);
  std::vector<int32_t> data = numbers(0, 8);
  std::vector<int32_t> out(8);
  std::vector<std::unique_ptr<Work>> works;
  works.push_back(broken.work(0, 0, messageShape(4, 1, true), nullptr, out.data()));  // never sent to
  works.push_back(broken.work(1, 0, messageShape(0, 0, false), nullptr, nullptr));
  works.push_back(sound.work(0, 0, shapeOf(Collective::AllReduce, DataType::I32, 8), data.data(), out.data()));
  broken.planned.hub().failAll(error(Code::RemoteError, "the first"));
  const Status status = drive(works, 0);
  EXPECT_EQ(status.code(), Code::RemoteError);
  EXPECT_EQ(status.text().rfind("the first", 0), 0U) << status.text();
  EXPECT_EQ(out, data);
}

/// One picks the window, the other the ring: no data ever meets, so only the board can tell.
TEST(Drive, CallsThatNeverMeetAreNoticedAllTheSame) {
  Comm comm(2);
  std::vector<int32_t> small(4);
  std::vector<int32_t> large(100000);
  std::vector<std::unique_ptr<Work>> works;
  works.push_back(comm.work(0, 0, shapeOf(Collective::AllReduce, DataType::I32, 4), small.data(), small.data()));
  works.push_back(comm.work(1, 0, shapeOf(Collective::AllReduce, DataType::I32, 100000), large.data(), large.data()));
  const Status status = drive(works, 5);
  EXPECT_EQ(status.code(), Code::InvalidUsage);
  EXPECT_NE(status.text().find("AllReduce #0 of 4 int32, sum"), std::string::npos) << status.text();
  EXPECT_NE(status.text().find("AllReduce #0 of 100000 int32, sum"), std::string::npos) << status.text();
}

TEST(Drive, AFailureOfOneRankEndsTheWaitOfTheOthers) {
  Comm comm(3, settingsOf(4, 1024, "ring"));
  std::vector<std::vector<int32_t>> buffers;
  std::vector<std::unique_ptr<Work>> works;
  for (int32_t r = 0; r < 3; ++r) {
    buffers.push_back(numbers(r, 100));
    plan::Shape shape = shapeOf(Collective::AllReduce, DataType::I32, 100);
    if (r == 1) shape.op = ReduceOp::Max;
    works.push_back(comm.work(r, 0, shape, buffers.back().data(), buffers.back().data()));
  }
  const Status status = drive(works, 5);
  EXPECT_EQ(status.code(), Code::InvalidUsage);
  for (const auto& work : works) {
    EXPECT_NE(work->status().text().find("calls do not match"), std::string::npos) << work->status().text();
    EXPECT_NE(work->status().text().find(", max"), std::string::npos) << work->status().text();
  }
}

}  // namespace
}  // namespace tutti::exec::host::drive_test
