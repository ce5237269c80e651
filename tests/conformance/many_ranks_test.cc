// More ranks than the matrix has: cells of windows shrink with their number, and choices are extended beyond what is recorded.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "conformance/harness.h"

namespace tutti::conformance::many_ranks_test {
namespace {

void gatherAndReduce(int ranks, const char* algorithms, const std::vector<size_t>& counts) {
  RankThreads threads(ranks, algorithms);
  ASSERT_TRUE(threads.created());
  threads.run([&](int rank, ncclComm_t comm) {
    const auto n = static_cast<size_t>(ranks);
    for (const size_t count : counts) {
      const auto at = [&](size_t r, size_t i) { return static_cast<int32_t>(r * 1000003 + i * 7 + count); };
      std::vector<int32_t> in(count), out(count * n, -1);
      for (size_t i = 0; i < count; ++i) in[i] = at(static_cast<size_t>(rank), i);
      ASSERT_EQ(ncclAllGather(in.data(), out.data(), count, ncclInt32, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
      size_t wrong = 0;
      for (size_t r = 0; r < n; ++r)
        for (size_t i = 0; i < count; ++i) wrong += out[r * count + i] != at(r, i) ? 1 : 0;
      EXPECT_EQ(wrong, 0u) << "all-gather of " << count << ", rank " << rank << " of " << ranks;

      std::vector<int32_t> sum(count * n), own(count, -1);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<int32_t>(i) + rank;
      const auto total = [&](size_t i) { return static_cast<int32_t>(i * n + n * (n - 1) / 2); };
      ASSERT_EQ(ncclReduceScatter(sum.data(), own.data(), count, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
      ASSERT_EQ(ncclAllReduce(sum.data(), sum.data(), sum.size(), ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
      wrong = 0;
      for (size_t i = 0; i < sum.size(); ++i) wrong += sum[i] != total(i) ? 1 : 0;
      for (size_t i = 0; i < count; ++i) wrong += own[i] != total(static_cast<size_t>(rank) * count + i) ? 1 : 0;
      EXPECT_EQ(wrong, 0u) << "sums of " << count << ", rank " << rank << " of " << ranks;
    }
  });
}

TEST(ManyRanks, ChosenAlgorithms) {
  for (const int ranks : {33, 65, 100}) gatherAndReduce(ranks, "", {1, 700, 1024, 1100});
}
TEST(ManyRanks, Windows) {
  for (const int ranks : {65, 128})
    gatherAndReduce(ranks, "allreduce:twoshot;reducescatter:direct;allgather:direct", {1, 127, 1000, 1024, 1025});
}

}  // namespace
}  // namespace tutti::conformance::many_ranks_test
