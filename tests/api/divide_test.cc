// ncclCommSplit and ncclCommShrink: who becomes a member of what, and what is refused.
#include <thread>
#include <vector>

#include "api/api_fixture.h"

namespace tutti::api_test::divide_test {
namespace {

using conformance::RankThreads;
using conformance::runWithin;

constexpr int kRanks = 4;
using Comms = std::vector<ncclComm_t>;

/// Ranks of one thread; aborted at the end, in whatever state they are.
class Divide : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ok); }
  void TearDown() override {
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ok) << ncclGetLastError(nullptr);
  }
  Comms comms = Comms(kRanks);
};

/// Splits all in one group.
Comms split(const Comms& parents, const std::vector<int>& colors, const std::vector<int>& keys) {
  Comms children(parents.size(), reinterpret_cast<ncclComm_t>(0x77));
  EXPECT_EQ(ncclGroupStart(), ok);
  for (size_t i = 0; i < parents.size(); ++i)
    EXPECT_EQ(ncclCommSplit(parents[i], colors[i], keys[i], &children[i], nullptr), ok) << ncclGetLastError(nullptr);
  EXPECT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
  return children;
}

int rankOf(ncclComm_t comm) {
  int rank = -1;
  EXPECT_EQ(ncclCommUserRank(comm, &rank), ok) << ncclGetLastError(nullptr);
  return rank;
}
int sizeOf(ncclComm_t comm) {
  int size = -1;
  EXPECT_EQ(ncclCommCount(comm, &size), ok);
  return size;
}

/// Sums 1 << index over the members of each; what each gets. NULLs are left out.
std::vector<int> sums(const Comms& comms) {
  std::vector<int> values;
  for (size_t i = 0; i < comms.size(); ++i) values.push_back(1 << i);
  EXPECT_EQ(ncclGroupStart(), ok);
  for (size_t i = 0; i < comms.size(); ++i)
    if (comms[i] != nullptr) {
      EXPECT_EQ(ncclAllReduce(&values[i], &values[i], 1, ncclInt, ncclSum, comms[i], nullptr), ok) << ncclGetLastError(nullptr);
    }
  EXPECT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
  return values;
}

void destroy(const Comms& comms) {
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok) << ncclGetLastError(nullptr);
}

TEST_F(Divide, SplitByColourAndKey) {
  const Comms children = split(comms, {7, -5, 7, -5}, {0, 9, -1, 2});
  EXPECT_EQ(sums(children), (std::vector<int>{5, 10, 5, 10}));
  EXPECT_EQ(rankOf(children[0]), 1) << "the smaller key first, negative or not";
  EXPECT_EQ(rankOf(children[2]), 0);
  EXPECT_EQ(rankOf(children[1]), 1);
  EXPECT_EQ(rankOf(children[3]), 0);
  for (ncclComm_t child : children) EXPECT_EQ(sizeOf(child), 2);
  EXPECT_EQ(sums(comms), std::vector<int>(4, 15)) << "the parent goes on";
  destroy(children);
}

TEST_F(Divide, EqualKeysKeepTheParentsOrder) {
  const Comms children = split(comms, {0, 0, 0, 0}, {3, 3, 1, 3});
  EXPECT_EQ(rankOf(children[2]), 0);
  EXPECT_EQ(rankOf(children[0]), 1);
  EXPECT_EQ(rankOf(children[1]), 2);
  EXPECT_EQ(rankOf(children[3]), 3);
  for (int r = 0; r < kRanks; ++r) {
    int device = -1, own = -1;
    EXPECT_EQ(ncclCommCuDevice(children[r], &device), ok);
    EXPECT_EQ(ncclCommCuDevice(comms[r], &own), ok);
    EXPECT_EQ(device, own);
  }
  destroy(children);
}

TEST_F(Divide, NoColourTakesPartAndGetsNothing) {
  const Comms children = split(comms, {NCCL_SPLIT_NOCOLOR, 1, NCCL_SPLIT_NOCOLOR, 1}, {0, 0, 0, 0});
  EXPECT_EQ(children[0], nullptr);
  EXPECT_EQ(children[2], nullptr);
  EXPECT_EQ(sums(children), (std::vector<int>{1, 10, 4, 10}));
  destroy(children);
  const Comms none = split(comms, std::vector<int>(4, NCCL_SPLIT_NOCOLOR), {0, 0, 0, 0});
  EXPECT_EQ(none, Comms(4, nullptr));
}

TEST_F(Divide, ChildrenOfChildrenAndAParentThatEndsFirst) {
  const Comms halves = split(comms, {0, 0, 1, 1}, {0, 1, 0, 1});
  const Comms single = split(halves, {0, 1, 0, 1}, {0, 0, 0, 0});
  destroy(halves);
  EXPECT_EQ(sums(single), (std::vector<int>{1, 2, 4, 8}));
  destroy(single);
}

// Several splits of several communicators and calls on them in one group: communicators are made first.
TEST_F(Divide, SeveralSplitsACreationAndCallsInOneGroup) {
  Comms a(kRanks), b(kRanks), fresh(2);
  std::vector<int> values = {1, 2, 4, 8};
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ok);
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = kRanks - 1; r >= 0; --r) {
    ASSERT_EQ(ncclAllReduce(&values[r], &values[r], 1, ncclInt, ncclSum, comms[r], nullptr), ok);
    ASSERT_EQ(ncclCommSplit(comms[r], r % 2, r, &a[r], nullptr), ok);
    ASSERT_EQ(ncclCommSplit(comms[r], 0, -r, &b[r], nullptr), ok);
  }
  for (int r = 0; r < 2; ++r) ASSERT_EQ(ncclCommInitRank(&fresh[r], 2, id, r), ok);
  ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
  EXPECT_EQ(values, std::vector<int>(4, 15));
  EXPECT_EQ(sums(a), (std::vector<int>{5, 10, 5, 10}));
  EXPECT_EQ(sums(b), std::vector<int>(4, 15));
  EXPECT_EQ(rankOf(b[3]), 0);
  EXPECT_EQ(sums(fresh), std::vector<int>(2, 3));
  for (const Comms& made : {a, b, fresh}) destroy(made);
}

TEST_F(Divide, SplitArguments) {
  ncclComm_t child = reinterpret_cast<ncclComm_t>(0x55);
  EXPECT_TRUE(refused(ncclCommSplit(nullptr, 0, 0, &child, nullptr), ncclInvalidArgument, {"comm", "NULL"}));
  EXPECT_TRUE(refused(ncclCommSplit(comms[0], 0, 0, nullptr, nullptr), ncclInvalidArgument, {"newcomm", "NULL"}));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.magic = 1;
  EXPECT_TRUE(refused(ncclCommSplit(comms[0], 0, 0, &child, &config), ncclInvalidArgument, {"NCCL_CONFIG_INITIALIZER"}));
  EXPECT_EQ(child, nullptr);
  EXPECT_EQ(sums(comms), std::vector<int>(4, 15)) << "it stays usable";
}

// A group whose split fails leaves nothing behind.
TEST_F(Divide, AGroupThatFailsMakesNothing) {
  Comms children(kRanks);
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = 0; r < kRanks; ++r) ASSERT_EQ(ncclCommSplit(comms[r], 0, 0, &children[r], nullptr), ok);
  EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(children, Comms(4, nullptr));
  EXPECT_EQ(sums(comms), std::vector<int>(4, 15)) << "it stays usable";
}

TEST(Split, OnThreadsOfTheirOwn) {
  RankThreads threads(5);
  threads.run([](int rank, ncclComm_t comm) {
    for (int round = 0; round < 20; ++round) {
      ncclComm_t child = nullptr;
      ASSERT_EQ(ncclCommSplit(comm, (rank + round) % 2, round % 3 == 0 ? -rank : rank, &child, nullptr), ok);
      int value = 1;
      ASSERT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, child, nullptr), ok);
      EXPECT_EQ(value, sizeOf(child));
      EXPECT_EQ(ncclCommDestroy(child), ok);
    }
  });
}

TEST(Split, AgainstACollectiveIsToldOnBothSides) {
  RankThreads threads(2);
  ncclResult_t results[2], states[2];
  threads.run([&](int rank, ncclComm_t comm) {
    int value = 1;
    ncclComm_t child = nullptr;
    results[rank] =
        rank == 0 ? ncclCommSplit(comm, 0, 0, &child, nullptr) : ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr);
    EXPECT_EQ(child, nullptr);
    threads.meet();
    EXPECT_EQ(ncclCommGetAsyncError(comm, &states[rank]), ok);
  });
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(results[r], ncclInvalidUsage) << r;
    EXPECT_EQ(states[r], ncclInvalidUsage) << r;
  }
  const std::string text = ncclGetLastError(nullptr);
  EXPECT_NE(text.find("CommSplit #0"), std::string::npos) << text;
  EXPECT_NE(text.find("AllReduce #0 of 1 int32"), std::string::npos) << text;
}

TEST(Split, EndsWhenAPeerLeaves) {
  for (const bool abort : {false, true}) {
    runWithin(10, "split without a peer", [abort] {
      ncclComm_t comms[2];
      ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
      std::thread leaver([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        EXPECT_EQ(abort ? ncclCommAbort(comms[1]) : ncclCommDestroy(comms[1]), ok);
      });
      ncclComm_t child = nullptr;
      EXPECT_TRUE(refused(ncclCommSplit(comms[0], 0, 0, &child, nullptr), ncclRemoteError, {"rank 1"}));
      leaver.join();
      EXPECT_EQ(child, nullptr);
      EXPECT_EQ(ncclCommDestroy(comms[0]), ok);
    });
  }
}

TEST(Split, EndsWhenItsOwnCommunicatorIsAborted) {
  runWithin(10, "abort of a waiting split", [] {
    ncclComm_t comms[2];
    ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      EXPECT_EQ(ncclCommAbort(comms[0]), ok);
    });
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &child, nullptr), ncclRemoteError);
    other.join();
    EXPECT_EQ(ncclCommAbort(comms[1]), ok);
  });
}

TEST_F(Divide, Shrink) {
  Comms children(kRanks);
  int excluded[2] = {3, 1};
  ASSERT_EQ(ncclGroupStart(), ok);
  for (const int r : {0, 2}) ASSERT_EQ(ncclCommShrink(comms[r], excluded, 2, &children[r], nullptr, NCCL_SHRINK_DEFAULT), ok);
  ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
  EXPECT_EQ(excluded[0], 1) << "sorted in place";
  EXPECT_EQ(sums(children), (std::vector<int>{5, 2, 5, 8}));
  EXPECT_EQ(rankOf(children[2]), 1);
  EXPECT_EQ(sums(comms), std::vector<int>(4, 15)) << "the parent goes on";
  destroy(children);
}

TEST_F(Divide, ShrinkArguments) {
  ncclComm_t child = reinterpret_cast<ncclComm_t>(0x55);
  int one[] = {1}, self[] = {2, 0}, outside[] = {4}, negative[] = {-1}, twice[] = {2, 2}, all[] = {0, 1, 2, 3};
  const auto shrink = [&](int* list, int count, int flags = 0) { return ncclCommShrink(comms[0], list, count, &child, nullptr, flags); };
  EXPECT_TRUE(refused(ncclCommShrink(nullptr, one, 1, &child, nullptr, 0), ncclInvalidArgument, {"comm", "NULL"}));
  EXPECT_TRUE(refused(ncclCommShrink(comms[0], one, 1, nullptr, nullptr, 0), ncclInvalidArgument, {"newcomm", "NULL"}));
  EXPECT_TRUE(refused(shrink(nullptr, 1), ncclInvalidArgument, {"excludeRanksList", "NULL"}));
  EXPECT_EQ(child, nullptr);
  for (const int count : {0, -1, 4})
    EXPECT_TRUE(refused(shrink(all, count), ncclInvalidArgument, {"excludeRanksCount", std::to_string(count)}));
  EXPECT_TRUE(refused(shrink(self, 2), ncclInvalidArgument, {"0", "calling rank"}));
  EXPECT_TRUE(refused(shrink(outside, 1), ncclInvalidArgument, {"4", "0 to 3"}));
  EXPECT_TRUE(refused(shrink(negative, 1), ncclInvalidArgument, {"-1", "0 to 3"}));
  EXPECT_TRUE(refused(shrink(twice, 2), ncclInvalidArgument, {"2 twice"}));
  EXPECT_TRUE(refused(shrink(one, 1, 2), ncclInvalidArgument, {"shrinkFlags", "2"}));
  EXPECT_EQ(sums(comms), std::vector<int>(4, 15)) << "it stays usable";
}

TEST_F(Divide, ShrinkAfterAFailureNeedsTheFlag) {
  EXPECT_EQ(ncclCommAbort(comms[1]), ok);
  comms[1] = nullptr;
  int excluded[] = {1};
  Comms children(kRanks);
  EXPECT_TRUE(
      refused(ncclCommShrink(comms[0], excluded, 1, &children[0], nullptr, NCCL_SHRINK_DEFAULT), ncclRemoteError, {"rank 1 aborted"}));
  ASSERT_EQ(ncclGroupStart(), ok);
  for (const int r : {0, 2, 3}) ASSERT_EQ(ncclCommShrink(comms[r], excluded, 1, &children[r], nullptr, NCCL_SHRINK_ABORT), ok);
  ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
  EXPECT_EQ(sums(children), (std::vector<int>{13, 2, 13, 13}));
  destroy(children);
}

TEST_F(Divide, ShrinkEndsWorkInFlight) {
  runWithin(10, "shrink with work in flight", [this] {
    cudaStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), ok);
    int value = 1, excluded[] = {3};
    ASSERT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comms[0], stream), ok);  // nobody else calls
    Comms children(kRanks);
    ASSERT_EQ(ncclGroupStart(), ok);
    for (const int r : {0, 1, 2}) ASSERT_EQ(ncclCommShrink(comms[r], excluded, 1, &children[r], nullptr, NCCL_SHRINK_ABORT), ok);
    ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
    EXPECT_EQ(tuttiStreamSynchronize(stream), ncclRemoteError);
    EXPECT_EQ(tuttiStreamDestroy(stream), ok);
    EXPECT_EQ(sums(children), (std::vector<int>{7, 7, 7, 8}));
    destroy(children);
  });
}

TEST(Shrink, ListsThatDifferAreTold) {
  RankThreads threads(4);
  threads.run([](int rank, ncclComm_t comm) {
    if (rank > 1) return;
    ncclComm_t child = nullptr;
    int excluded = rank == 0 ? 3 : 2;
    EXPECT_EQ(ncclCommShrink(comm, &excluded, 1, &child, nullptr, 0), ncclInvalidUsage);
    EXPECT_EQ(child, nullptr);
  });
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("same list"), std::string::npos) << ncclGetLastError(nullptr);
}

TEST(Shrink, AgainstACollectiveIsToldOnBothSides) {
  RankThreads threads(3);
  threads.run([](int rank, ncclComm_t comm) {
    if (rank == 2) return;
    ncclComm_t child = nullptr;
    int excluded = 2, value = 0;
    const ncclResult_t result = rank == 0 ? ncclCommShrink(comm, &excluded, 1, &child, nullptr, 0)
                                          : ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr);
    EXPECT_EQ(result, ncclInvalidUsage) << "rank " << rank;
  });
  const std::string text = ncclGetLastError(nullptr);
  EXPECT_NE(text.find("CommShrink"), std::string::npos) << text;
  EXPECT_NE(text.find("AllReduce #0"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::api_test::divide_test
