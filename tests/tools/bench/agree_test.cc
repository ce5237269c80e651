// Several processes of a benchmark, each played by a team of its own: they measure the same, and agree on what they found.
#include "bench/agree.h"

#include <gtest/gtest.h>

#include <thread>

#include "bench/measure.h"

namespace tutti::bench::agree_test {
namespace {

constexpr std::chrono::milliseconds kTimeout{60000};

/// Runs `work` for each process, at the same time.
void asProcesses(int count, int threads, const std::function<void(Team&, int)>& work) {
  const Result<ncclUniqueId> id = makeUniqueId();
  ASSERT_TRUE(id);
  std::vector<std::thread> processes;
  for (int number = 0; number < count; ++number) {
    processes.emplace_back([&, number] {
      auto team = Team::start(Crew{count * threads, number * threads, threads}, *id, kTimeout);
      ASSERT_TRUE(team) << team.error().text();
      EXPECT_EQ((*team)->ranks(), count * threads);
      work(**team, number);
    });
  }
  for (std::thread& process : processes) process.join();
}

TEST(Agree, OnTheLargestAndTheSum) {
  for (const int threads : {1, 2}) {
    asProcesses(3, threads, [](Team& team, int number) {
      std::vector<double> times = {1.5 * number, 10.0 - number, 0};
      EXPECT_TRUE(agreeOnMax(team, times).ok());
      EXPECT_EQ(times, (std::vector<double>{3, 10, 0}));
      std::vector<uint64_t> counts = {uint64_t{1} << 60, static_cast<uint64_t>(number)};
      EXPECT_TRUE(agreeOnSum(team, counts).ok());
      EXPECT_EQ(counts, (std::vector<uint64_t>{uint64_t{3} << 60, 3}));
    });
  }
}

TEST(Agree, AloneNothingHappens) {
  auto team = Team::start(2, kTimeout);
  ASSERT_TRUE(team);
  std::vector<uint64_t> counts = {7};
  EXPECT_TRUE(agreeOnSum(**team, counts).ok());
  EXPECT_EQ(counts[0], 7U);
}

TEST(Agree, RanksHaveTheirPlaces) {
  asProcesses(2, 2, [](Team& team, int number) {
    EXPECT_TRUE(team.run("looking",
                         [&](Member& member) -> Status {
                           EXPECT_EQ(member.rank(), 2 * number + member.index());
                           return member.meet();
                         })
                    .ok());
  });
}

TEST(Agree, ARankThatFailsEndsTheOtherProcess) {
  asProcesses(2, 1, [](Team& team, int number) {
    const Status status =
        team.run("failing", [&](Member& member) { return number == 1 ? error(Code::SystemError, "a bad day") : member.meet(); });
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.text() == "a bad day", number == 1) << status.text();
  });
}

Options optionsFor(const char* operation, BufferKind buffers, bool rewrites) {
  Options options;
  options.operation = *findOperation(operation);
  options.iterations = 5;
  options.buffers = buffers;
  options.rewritesInputs = rewrites;
  return options;
}

TEST(Agree, ProcessesMeasureTheSame) {
  for (const Operation& operation : operations()) {
    const bool rewrites = operation.op == Op::AllReduce || operation.op == Op::Gather;
    const Options options = optionsFor(operation.name.data(), rewrites ? BufferKind::NcclMem : BufferKind::Malloc, rewrites);
    double times[2] = {};
    asProcesses(2, 2, [&](Team& team, int number) {
      auto bench = Bench::create(team, options, 4 << 12, 4 << 12);
      ASSERT_TRUE(bench);
      const std::optional<RedOp> op = operation.isReduction ? std::optional(RedOp::Sum) : std::nullopt;
      (*bench)->setPatterns(DataType::F32, op);
      const Call call = {&operation, DataType::F32, op, operation.isRooted ? 1 : -1, 1000, 4, false};
      const Result<Measurement> measurement = (*bench)->measure(call);
      ASSERT_TRUE(measurement) << measurement.error().text();
      EXPECT_EQ(measurement->wrong, 0U) << measurement->firstWrong;
      times[number] = measurement->timing.medianUs;
      const Result<Traffic> traffic = (*bench)->explainAll(call);
      ASSERT_TRUE(traffic);
      EXPECT_GT(traffic->bytes, 0U);
    });
    EXPECT_GT(times[0], 0);
    EXPECT_EQ(times[0], times[1]);
  }
}

TEST(Agree, AHashTellsAnyBit) {
  std::vector<std::byte> data(37);
  Call call;
  call.operation = *findOperation("all_reduce");
  call.type = DataType::U8;
  call.count = data.size();
  const Placement placement = {nullptr, data.data(), false};
  const uint64_t hash = hashResult(call, placement);
  for (std::byte& byte : data) {
    byte ^= std::byte{0x80};
    EXPECT_NE(hashResult(call, placement), hash);
    byte ^= std::byte{0x80};
  }
  EXPECT_EQ(hashResult(call, placement), hash);
}

}  // namespace
}  // namespace tutti::bench::agree_test
