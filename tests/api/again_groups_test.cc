// Groups of messages like earlier ones, of which no calls are made before the group ends: whatever else is in the group, and whatever
// happens before its end, finds them as it finds all calls.
#include <array>
#include <string>
#include <thread>
#include <vector>

#include "api/api_fixture.h"

namespace tutti::api_test::again_groups_test {
namespace {

using conformance::RankThreads;

constexpr int kRepeats = 10;

/// Rank 0 sends ints, and rank 1 receives them.
class Pair {
 public:
  Pair(int rank, ncclComm_t comm) : rank_(rank), comm_(comm) {}

  /// So often that the next one is like earlier ones.
  void warmUp(size_t count) {
    std::vector<int> values(count);
    for (int i = 0; i < kRepeats; ++i) {
      ASSERT_EQ(ncclGroupStart(), ok);
      ASSERT_EQ(pass(values.data(), count), ok);
      ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm_);
    }
  }
  ncclResult_t pass(int* values, size_t count) const {
    return rank_ == 0 ? ncclSend(values, count, ncclInt, 1, comm_, nullptr) : ncclRecv(values, count, ncclInt, 0, comm_, nullptr);
  }
  /// A group of one message alone, whose value the receiver checks.
  void passAlone(int value) const {
    int got = rank_ == 0 ? value : -1;
    ASSERT_EQ(ncclGroupStart(), ok);
    ASSERT_EQ(pass(&got, 1), ok);
    ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm_);
    EXPECT_EQ(got, value);
  }

 private:
  int rank_;
  ncclComm_t comm_;
};

// Between two that were there before one is of a length that was not, or too long to go without a work: they arrive as they were called.
TEST(AgainGroups, MessagesOfAPairKeepTheirOrderBesideOthers) {
  RankThreads threads(2);
  threads.run([](int rank, ncclComm_t comm) {
    Pair pair(rank, comm);
    ASSERT_NO_FATAL_FAILURE(pair.warmUp(2));
    for (int round = 0; round < 60 && !testing::Test::HasFailure(); ++round) {
      const size_t others[] = {static_cast<size_t>(3 + round), 2, 30000};
      const size_t counts[] = {2, others[round % 3], 2, 2};
      std::vector<int> values[4];
      ASSERT_EQ(ncclGroupStart(), ok);
      for (int i = 0; i < 4; ++i) {
        values[i].assign(counts[i], rank == 0 ? 10 * round + i : -1);
        ASSERT_EQ(pair.pass(values[i].data(), counts[i]), ok);
      }
      int sum = 1;
      if (round % 2 == 0) {
        ASSERT_EQ(ncclAllReduce(&sum, &sum, 1, ncclInt, ncclSum, comm, nullptr), ok);
      }
      ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm);
      for (int i = 0; i < 4; ++i) ASSERT_EQ(values[i], std::vector<int>(counts[i], 10 * round + i)) << "round " << round;
      ASSERT_EQ(sum, round % 2 == 0 ? 2 : 1);
    }
  });
}

TEST(AgainGroups, AnErrorInBetweenPassesNothing) {
  RankThreads threads(2);
  threads.run([](int rank, ncclComm_t comm) {
    Pair pair(rank, comm);
    ASSERT_NO_FATAL_FAILURE(pair.warmUp(1));
    for (const bool isFirst : {true, false}) {
      int value = 13;
      ASSERT_EQ(ncclGroupStart(), ok);
      if (!isFirst) {
        ASSERT_EQ(pair.pass(&value, 1), ok);
      }
      EXPECT_TRUE(refused(pair.pass(nullptr, 1), ncclInvalidArgument, {"NULL"}));
      if (isFirst) {
        ASSERT_EQ(pair.pass(&value, 1), ok);
      }
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
      ASSERT_NO_FATAL_FAILURE(pair.passAlone(isFirst ? 7 : 8));
    }
  });
}

TEST(AgainGroups, SimulatedOnesAreForgotten) {
  RankThreads threads(2);
  threads.run([](int rank, ncclComm_t comm) {
    Pair pair(rank, comm);
    ASSERT_NO_FATAL_FAILURE(pair.warmUp(1));
    int value = 13;
    int sum = 1;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ASSERT_EQ(ncclGroupStart(), ok);
    ASSERT_EQ(ncclAllReduce(&sum, &sum, 1, ncclInt, ncclSum, comm, nullptr), ok);
    ASSERT_EQ(pair.pass(&value, 1), ok);
    ASSERT_EQ(ncclGroupSimulateEnd(&info), ok);
    EXPECT_EQ(info.estimatedTime, -1.0F) << "of messages nothing is known";
    ASSERT_NO_FATAL_FAILURE(pair.passAlone(7));
  });
}

// The group's own end comes behind its messages.
TEST(AgainGroups, TheirCommunicatorMayBeDestroyedInTheSameGroup) {
  std::array<ncclComm_t, 2> comms{};
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ok);
  std::vector<std::thread> owners;
  for (int rank = 0; rank < 2; ++rank)
    owners.emplace_back([rank, comm = comms[static_cast<size_t>(rank)]] {
      Pair pair(rank, comm);
      ASSERT_NO_FATAL_FAILURE(pair.warmUp(1));
      int value = rank == 0 ? 21 : -1;
      ASSERT_EQ(ncclGroupStart(), ok);
      ASSERT_EQ(pair.pass(&value, 1), ok);
      ASSERT_EQ(ncclCommDestroy(comm), ok);
      ASSERT_EQ(ncclGroupEnd(), ok);
      EXPECT_EQ(value, 21);
    });
  for (std::thread& owner : owners) owner.join();
}

TEST(AgainGroups, ACommunicatorAbortedMeanwhileIsNoticed) {
  std::array<ncclComm_t, 2> comms{};
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ok);
  std::thread peer([comm = comms[1]] { ASSERT_NO_FATAL_FAILURE(Pair(1, comm).warmUp(1)); });
  Pair pair(0, comms[0]);
  ASSERT_NO_FATAL_FAILURE(pair.warmUp(1));
  peer.join();
  int value = 0;
  ASSERT_EQ(ncclGroupStart(), ok);
  ASSERT_EQ(pair.pass(&value, 1), ok);
  std::thread([&] { EXPECT_EQ(ncclCommAbort(comms[0]), ok); }).join();
  EXPECT_TRUE(refused(ncclGroupEnd(), ncclInvalidUsage, {"destroyed or aborted"}));
  EXPECT_EQ(ncclCommAbort(comms[1]), ok);
}

// Between a message and the end of its group: as of any call, the end says so, and the other communicator's message is passed.
TEST(AgainGroups, ACommunicatorRevokedMeanwhileHoldsNoOtherUp) {
  RankThreads threads(2);
  threads.run([](int rank, ncclComm_t comm) {
    ncclComm_t twin = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, rank, &twin, nullptr), ok);
    Pair first(rank, comm);
    Pair second(rank, twin);
    ASSERT_NO_FATAL_FAILURE(first.warmUp(1));
    ASSERT_NO_FATAL_FAILURE(second.warmUp(1));
    int values[2] = {rank == 0 ? 5 : -1, rank == 0 ? 6 : -1};
    ASSERT_EQ(ncclGroupStart(), ok);
    ASSERT_EQ(first.pass(&values[0], 1), ok);
    ASSERT_EQ(second.pass(&values[1], 1), ok);
    std::thread([twin] { EXPECT_EQ(ncclCommRevoke(twin, NCCL_REVOKE_DEFAULT), ok); }).join();
    EXPECT_NE(ncclGroupEnd(), ok);
    EXPECT_EQ(values[0], 5);
    ASSERT_EQ(ncclCommDestroy(twin), ok);
  });
}

// One name is not the other, though a thread has both.
TEST(AgainGroups, OfTwoCommunicatorsInOneGroup) {
  RankThreads threads(2);
  threads.run([](int rank, ncclComm_t comm) {
    ncclComm_t twin = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, rank, &twin, nullptr), ok);
    Pair first(rank, comm);
    Pair second(rank, twin);
    ASSERT_NO_FATAL_FAILURE(first.warmUp(1));
    ASSERT_NO_FATAL_FAILURE(second.warmUp(1));
    for (int round = 0; round < 20; ++round) {
      int values[2] = {rank == 0 ? round : -1, rank == 0 ? 100 + round : -1};
      ASSERT_EQ(ncclGroupStart(), ok);
      for (const int which : {rank, 1 - rank}) ASSERT_EQ((which == 0 ? first : second).pass(&values[which], 1), ok);
      ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm);
      ASSERT_EQ(values[0], round);
      ASSERT_EQ(values[1], 100 + round);
    }
    ASSERT_EQ(ncclCommDestroy(twin), ok);
  });
}

}  // namespace
}  // namespace tutti::api_test::again_groups_test
