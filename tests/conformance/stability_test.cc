// The same inputs give the same bits, whatever the timing, the repetition and the way the call is made.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <set>

#include "conformance/run_case.h"

namespace tutti::conformance::stability_test {
namespace {

Case sumOf(std::string_view algorithm, int ranks, DataType type, uint64_t count) {
  Case c;
  c.algorithm = algorithm;
  c.ranks = ranks;
  c.type = type;
  c.count = count;
  c.seed = 99;
  return c;
}

class Stability : public testing::TestWithParam<Column> {};

std::vector<Column> allReduces() {
  std::vector<Column> found;
  for (const Column& column : columns())
    if (column.kind == Kind::AllReduce) found.push_back(column);
  return found;
}

// Twenty repetitions, half of them with ranks that come at random times.
TEST_P(Stability, TimingAndRepetitionNeverChangeABit) {
  const Column column = GetParam();
  for (const int ranks : {2, 3, 8}) {
    std::set<uint64_t> hashes;
    RankThreads threads(ranks, std::string(column.force));
    ASSERT_TRUE(threads.created());
    for (int repetition = 0; repetition < 20; ++repetition) {
      CaseRunner runner(threads);
      runner.setJitterUs(repetition % 2 == 0 ? 0 : 2000);
      threads.run([&](int rank, ncclComm_t comm) {
        runner.runCase(sumOf(column.algorithm, ranks, DataType::F32, 3001), rank, comm);
        runner.runCase(sumOf(column.algorithm, ranks, DataType::BF16, 777), rank, comm);
      });
      EXPECT_EQ(runner.failures(), 0);
      hashes.insert(runner.hash());
    }
    EXPECT_EQ(hashes.size(), 1u) << column.algorithm << ", " << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Stability, testing::ValuesIn(allReduces()),
                         [](const auto& param) { return std::string(param.param.algorithm); });

// The contract in the example that users meet first: 256 + 1 + 1 + 1 in bfloat16 over 4 ranks. With rounding at every hop the
// ones are lost where 256 comes first; one-shot keeps the partial sum in fp32.
TEST(Rounding, RingLosesWhatOneShotKeeps) {
  constexpr uint16_t k256 = 0x4380;
  constexpr uint16_t k260 = 0x4382;
  constexpr uint16_t kOne = 0x3f80;
  constexpr size_t kCount = 4 * 32;  // four chunks of 64 bytes
  for (const char* algorithm : {"ring", "oneshot"}) {
    RankThreads threads(4, std::string("allreduce:") + algorithm);
    threads.run([&](int rank, ncclComm_t comm) {
      const std::vector<uint16_t> in(kCount, rank == 0 ? k256 : kOne);
      std::vector<uint16_t> out(kCount);
      ASSERT_EQ(ncclAllReduce(in.data(), out.data(), kCount, ncclBfloat16, ncclSum, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
      for (size_t i = 0; i < kCount; ++i) {
        // A chunk c folds ranks c+1, c+2, c+3, c: three ones make 3, and 3 + 256 rounds to 260; two ones after 256 are lost.
        const size_t chunk = i / 32;
        const bool keeps = std::string_view(algorithm) == "oneshot" || chunk == 0 || chunk == 1;
        EXPECT_EQ(out[i], keeps ? k260 : k256) << algorithm << " element " << i << " rank " << rank;
      }
    });
  }
}

// A different count moves chunk borders, which changes a ring's order; a one-shot result of the same data does not change.
TEST(Rounding, OneShotDoesNotDependOnTheCount) {
  constexpr size_t kCount = 2000;
  RankThreads threads(5, "allreduce:oneshot");
  threads.run([&](int rank, ncclComm_t comm) {
    Random random(static_cast<uint64_t>(rank));
    std::vector<float> in(kCount);
    for (float& x : in) x = static_cast<float>(random.between(-1e3, 1e3));
    std::vector<float> whole(kCount), part(kCount);
    ASSERT_EQ(ncclAllReduce(in.data(), whole.data(), kCount, ncclFloat, ncclSum, comm, nullptr), ncclSuccess);
    for (const size_t count : {1ul, 3ul, 17ul, 999ul, kCount - 1}) {
      ASSERT_EQ(ncclAllReduce(in.data(), part.data(), count, ncclFloat, ncclSum, comm, nullptr), ncclSuccess);
      EXPECT_EQ(std::memcmp(part.data(), whole.data(), count * sizeof(float)), 0) << count;
    }
  });
}

TEST(Rounding, ARingDependsOnTheCount) {
  constexpr size_t kCount = 2000;
  RankThreads threads(5, "allreduce:ring");
  threads.run([&](int rank, ncclComm_t comm) {
    Random random(static_cast<uint64_t>(rank));
    std::vector<float> in(kCount);
    for (float& x : in) x = static_cast<float>(random.between(-1e3, 1e3));
    std::vector<float> whole(kCount), part(kCount);
    ASSERT_EQ(ncclAllReduce(in.data(), whole.data(), kCount, ncclFloat, ncclSum, comm, nullptr), ncclSuccess);
    ASSERT_EQ(ncclAllReduce(in.data(), part.data(), kCount / 2, ncclFloat, ncclSum, comm, nullptr), ncclSuccess);
    EXPECT_NE(std::memcmp(part.data(), whole.data(), kCount / 2 * sizeof(float)), 0)
        << "or the tests of what does not depend on it show nothing";
  });
}

// Ranks may mix where their scalar lies: 2 * 1 from the host plus 10 * 1 read when the call runs.
TEST(PreMulSum, HostAndDeviceScalarsMix) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    float scalar = 2;
    ncclRedOp_t op;
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, rank == 0 ? ncclScalarHostImmediate : ncclScalarDevice, comm), ncclSuccess);
    scalar = 10;  // too late for rank 0, in time for rank 1
    const float one = 1;
    float sum = 0;
    ASSERT_EQ(ncclAllReduce(&one, &sum, 1, ncclFloat, op, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
    EXPECT_EQ(sum, 12.0F);
    scalar = 20;
    ASSERT_EQ(ncclAllReduce(&one, &sum, 1, ncclFloat, op, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
    EXPECT_EQ(sum, 22.0F) << "a scalar on the device is read whenever an operation runs";
    EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclSuccess);
  });
}

}  // namespace
}  // namespace tutti::conformance::stability_test
