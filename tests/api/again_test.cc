// Calls like the one before, which go straight to their steps: every change of shape, and everything that may end a communicator in
// between, finds them as it finds all calls.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "api/api_fixture.h"
#include "core/types.h"
#include "tutti.h"

namespace tutti::api_test::again_test {
namespace {

using conformance::RankThreads;
using conformance::runWithin;

constexpr int kRepeats = 40;  // more than one-way calls wait to be compared

/// One call of a rank, with the input that makes its result known.
struct Kind {
  Collective collective;
  size_t count;
  int root;
  bool inPlace;
};

int inputOf(int rank, uint64_t call, size_t at) { return rank * 1009 + static_cast<int>(call % 7919) * 31 + static_cast<int>(at); }

class Caller {
 public:
  Caller(int rank, int ranks, ncclComm_t comm) : rank_(rank), ranks_(ranks), comm_(comm), in_(8192), out_(8192) {}

  void make(const Kind& kind, uint64_t call) {
    const size_t n = kind.count;
    const size_t all = n * static_cast<size_t>(ranks_);
    const bool scatters = kind.collective == Collective::ReduceScatter;
    const bool gathers = kind.collective == Collective::AllGather;
    const size_t inSize = scatters ? all : n;
    const size_t outSize = gathers ? all : n;
    int* const out = out_.data();
    std::fill(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(std::max(inSize, outSize) + 8), -5);
    int* in = in_.data();
    if (kind.inPlace) in = gathers ? out + static_cast<size_t>(rank_) * n : out;
    int* const to = kind.inPlace && scatters ? out + static_cast<size_t>(rank_) * n : out;
    for (size_t i = 0; i < inSize; ++i) in[i] = inputOf(rank_, call, i);
    ASSERT_EQ(run(kind, in, to), ok) << "call " << call << ": " << ncclGetLastError(comm_);
    for (size_t i = 0; i < outSize; ++i) ASSERT_EQ(to[i], expected(kind, call, i)) << at(kind, call) << ", at " << i;
    if (!kind.inPlace) {
      ASSERT_EQ(out[outSize], -5) << at(kind, call) << ": wrote beyond its end";
    }
  }

 private:
  ncclResult_t run(const Kind& kind, const int* in, int* out) {
    switch (kind.collective) {
      case Collective::AllReduce: return ncclAllReduce(in, out, kind.count, ncclInt, ncclSum, comm_, nullptr);
      case Collective::AllGather: return ncclAllGather(in, out, kind.count, ncclInt, comm_, nullptr);
      case Collective::ReduceScatter: return ncclReduceScatter(in, out, kind.count, ncclInt, ncclSum, comm_, nullptr);
      case Collective::Reduce: return ncclReduce(in, out, kind.count, ncclInt, ncclSum, kind.root, comm_, nullptr);
      default: return ncclBroadcast(in, out, kind.count, ncclInt, kind.root, comm_, nullptr);
    }
  }
  int expected(const Kind& kind, uint64_t call, size_t at) const {
    const size_t n = kind.count;
    int sum = 0;
    switch (kind.collective) {
      case Collective::AllReduce:
        for (int r = 0; r < ranks_; ++r) sum += inputOf(r, call, at);
        return sum;
      case Collective::AllGather: return inputOf(static_cast<int>(at / n), call, at % n);
      case Collective::ReduceScatter:
        for (int r = 0; r < ranks_; ++r) sum += inputOf(r, call, static_cast<size_t>(rank_) * n + at);
        return sum;
      case Collective::Reduce:
        if (rank_ != kind.root) return kind.inPlace ? inputOf(rank_, call, at) : -5;
        for (int r = 0; r < ranks_; ++r) sum += inputOf(r, call, at);
        return sum;
      default: return inputOf(kind.root, call, at);
    }
  }

  std::string at(const Kind& kind, uint64_t call) const {
    return std::string(name(kind.collective)) + " of " + std::to_string(kind.count) + (kind.inPlace ? " in place" : "") + ", rank " +
           std::to_string(rank_) + " of " + std::to_string(ranks_) + ", call " + std::to_string(call);
  }

  int rank_;
  int ranks_;
  ncclComm_t comm_;
  std::vector<int> in_;
  std::vector<int> out_;
};

constexpr Collective kCollectives[] = {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::Reduce,
                                       Collective::Broadcast};

TEST(Again, EveryShapeAgainAndAgainAndAnyOtherInBetween) {
  for (const int ranks : {1, 2, 3, 5}) {
    RankThreads threads(ranks);
    threads.run([&](int rank, ncclComm_t comm) {
      Caller caller(rank, ranks, comm);
      std::mt19937 random(static_cast<unsigned>(ranks));  // the same on all ranks
      uint64_t call = 0;
      for (int round = 0; round < 300 && !testing::Test::HasFailure(); ++round) {
        constexpr size_t kCounts[] = {1, 2, 3, 5, 7, 23, 24, 25, 33, 120, 1000, 1100};
        Kind kind{kCollectives[random() % std::size(kCollectives)], kCounts[random() % std::size(kCounts)],
                  static_cast<int>(random() % static_cast<unsigned>(ranks)), random() % 2 == 0};
        const int times = static_cast<int>(random() % 6);
        for (int i = 0; i <= times; ++i) caller.make(kind, call++);
        kind.inPlace = !kind.inPlace;  // the shape stays
        caller.make(kind, call++);
      }
    });
  }
}

TEST(Again, AGroupCollectsTheCallThatWasMadeBefore) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    for (int round = 0; round < 3; ++round) {
      int out = 0;
      for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(ncclAllReduce(&rank, &out, 1, ncclInt, ncclSum, comm, nullptr), ok);
        ASSERT_EQ(out, 1);
      }
      out = -1;
      int root = rank == 0 ? 7 : 0;
      ASSERT_EQ(ncclGroupStart(), ok);
      ASSERT_EQ(ncclGroupStart(), ok);
      ASSERT_EQ(ncclAllReduce(&rank, &out, 1, ncclInt, ncclSum, comm, nullptr), ok);
      ASSERT_EQ(ncclGroupEnd(), ok);
      ASSERT_EQ(ncclAllReduce(&rank, &out, 1, ncclInt, ncclSum, comm, nullptr), ok);
      ASSERT_EQ(ncclBroadcast(&root, &root, 1, ncclInt, 0, comm, nullptr), ok);
      EXPECT_EQ(out, -1) << "nothing runs before the group ends";
      ASSERT_EQ(ncclGroupEnd(), ok);
      EXPECT_EQ(out, 1);
      EXPECT_EQ(root, 7);
      // The group's last call was another one than the latest that ran alone.
      int alone = rank == 0 ? 9 : 0;
      ASSERT_EQ(ncclBroadcast(&alone, &alone, 1, ncclInt, 0, comm, nullptr), ok);
      EXPECT_EQ(alone, 9);
    }
  });
}

TEST(Again, StreamsAndLoneCallsStayInOrder) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    cudaStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), ok);
    int value = rank;
    for (int round = 0; round < 50; ++round) {
      // Each call takes what the one before has made: 2^n times the first sum.
      value = rank;
      for (int i = 0; i < 3; ++i) ASSERT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr), ok);
      ASSERT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, stream), ok);
      ASSERT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr), ok) << "after the stream's";
      ASSERT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr), ok);
      EXPECT_EQ(value, 32);
    }
    ASSERT_EQ(tuttiStreamDestroy(stream), ok);
  });
}

TEST(Again, ASplitInBetweenTakesItsNumber) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    for (int round = 0; round < 5; ++round) {
      int value = 0;
      for (int i = 0; i < 4; ++i) ASSERT_EQ(ncclAllReduce(&rank, &value, 1, ncclInt, ncclSum, comm, nullptr), ok);
      ncclComm_t child = nullptr;
      ASSERT_EQ(ncclCommSplit(comm, 0, rank, &child, nullptr), ok) << ncclGetLastError(comm);
      for (int i = 0; i < 4; ++i) {
        ASSERT_EQ(ncclAllReduce(&rank, &value, 1, ncclInt, ncclSum, comm, nullptr), ok) << ncclGetLastError(comm);
        EXPECT_EQ(value, 1);
        ASSERT_EQ(ncclAllReduce(&rank, &value, 1, ncclInt, ncclMax, child, nullptr), ok) << ncclGetLastError(comm);
      }
      ASSERT_EQ(ncclCommDestroy(child), ok);
    }
  });
}

TEST(Again, AnotherCallThanThePeersIsTold) {
  const auto call = [](Collective collective, size_t count, int root, ncclComm_t comm) {
    int in[4] = {1, 2, 3, 4};
    int out[8] = {};
    if (collective == Collective::Broadcast) return ncclBroadcast(in, out, count, ncclInt, root, comm, nullptr);
    if (collective == Collective::AllReduce) return ncclAllReduce(in, out, count, ncclInt, ncclSum, comm, nullptr);
    return ncclReduce(in, out, count, ncclInt, ncclSum, root, comm, nullptr);
  };
  for (const Collective collective : {Collective::Broadcast, Collective::AllReduce, Collective::Reduce}) {
    for (const int odd : {0, 1}) {  // who makes the other call
      RankThreads threads(2);
      threads.run([&](int rank, ncclComm_t comm) {
        for (int i = 0; i < kRepeats; ++i) ASSERT_EQ(call(collective, 2, 0, comm), ok) << ncclGetLastError(comm);
        ncclResult_t result = call(collective, rank == odd ? 3 : 2, 0, comm);
        // Who only sends may hear of it later, but not later than slots and owed comparisons last.
        for (int i = 0; i < kRepeats && result == ok; ++i) result = call(collective, 2, 0, comm);
        EXPECT_EQ(result, ncclInvalidUsage) << "rank " << rank;
        const std::string text = ncclGetLastError(comm);
        EXPECT_NE(text.find(name(collective)), std::string::npos) << text;
        EXPECT_NE(text.find("of 3 int32"), std::string::npos) << text;
        EXPECT_NE(text.find("of 2 int32"), std::string::npos) << text;
        EXPECT_NE(call(collective, 2, 0, comm), ok) << "and no call is made any more";
      });
    }
  }
}

TEST(Again, RootsThatNobodyReadsFromAreToldOfOtherRoots) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    int value[2] = {rank, rank};
    for (int i = 0; i < kRepeats; ++i) ASSERT_EQ(ncclBroadcast(value, value, 2, ncclInt, 0, comm, nullptr), ok);
    ncclResult_t result = ok;
    for (int i = 0; i < 2 * kRepeats && result == ok; ++i) result = ncclBroadcast(value, value, 2, ncclInt, rank, comm, nullptr);
    EXPECT_EQ(result, ncclInvalidUsage);
    const std::string text = ncclGetLastError(comm);
    EXPECT_NE(text.find("root 0"), std::string::npos) << text;
    EXPECT_NE(text.find("root 1"), std::string::npos) << text;
  });
}

/// What ranks in a ring call with messages to the next one, the same on all of them for a seed, and what each must get.
class RingOfMessages {
 public:
  RingOfMessages(int rank, int ranks, ncclComm_t comm, unsigned seed)
      : rank_(rank), next_((rank + 1) % ranks), previous_((rank + ranks - 1) % ranks), comm_(comm), random_(seed) {
    EXPECT_EQ(tuttiStreamCreate(&stream_), ok);
  }
  ~RingOfMessages() { EXPECT_EQ(tuttiStreamDestroy(stream_), ok); }

  void makeSome() {
    constexpr size_t kBytes[] = {0, 1, 8, 24, 96, 97, 256, 257, 1000, 4096, 4097, 30000};
    const size_t bytes = kBytes[random_() % std::size(kBytes)];
    const unsigned kind = random_() % 8;
    const int times = 1 + static_cast<int>(random_() % 4);
    for (int i = 0; i < times && !testing::Test::HasFailure(); ++i) {
      switch (kind) {
        case 0: ASSERT_NO_FATAL_FAILURE(callOthers()); break;
        case 1: ASSERT_NO_FATAL_FAILURE(exchange({bytes, 8, bytes}, {nullptr})); break;
        case 2: ASSERT_NO_FATAL_FAILURE(exchange({bytes}, {stream_, nullptr, stream_})); break;
        case 3: ASSERT_NO_FATAL_FAILURE(passRound(bytes, stream_)); break;
        case 4:
        case 5: ASSERT_NO_FATAL_FAILURE(exchange({bytes}, {nullptr})); break;
        default: ASSERT_NO_FATAL_FAILURE(passRound(bytes, nullptr));
      }
    }
  }

 private:
  static std::string textOf(int rank, size_t bytes, unsigned salt) {
    std::string text(bytes, ' ');
    for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + (i + static_cast<size_t>(rank) * 5 + salt) % 26);
    return text;
  }
  ncclResult_t send(const std::string& text, cudaStream_t stream) const {
    return ncclSend(text.data(), text.size(), ncclInt8, next_, comm_, stream);
  }
  ncclResult_t receive(std::string& text, cudaStream_t stream) const {
    return ncclRecv(text.data(), text.size(), ncclInt8, previous_, comm_, stream);
  }
  /// In groups, of so many messages each; several of a pair keep their order. Each group is on the next of the streams, and waits for none.
  void exchange(const std::vector<size_t>& lengths, const std::vector<cudaStream_t>& streams) {
    const auto salt = static_cast<unsigned>(random_());
    std::vector<std::string> sent;
    std::vector<std::string> received;
    for (size_t i = 0; i < lengths.size() * streams.size(); ++i) {
      sent.push_back(textOf(rank_, lengths[i % lengths.size()], salt + static_cast<unsigned>(i)));
      received.emplace_back(sent.back().size(), '-');
    }
    for (size_t group = 0; group < streams.size(); ++group) {
      const size_t first = group * lengths.size();
      ASSERT_EQ(ncclGroupStart(), ok);
      for (size_t i = first; i < first + lengths.size(); ++i) ASSERT_EQ(receive(received[i], streams[group]), ok);
      for (size_t i = first; i < first + lengths.size(); ++i) ASSERT_EQ(send(sent[i], streams[group]), ok);
      ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm_);
    }
    for (cudaStream_t stream : streams) ASSERT_EQ(tuttiStreamSynchronize(stream), ok);
    for (size_t i = 0; i < received.size(); ++i)
      ASSERT_EQ(received[i], textOf(previous_, received[i].size(), salt + static_cast<unsigned>(i)));
  }
  /// Alone, from rank to rank.
  void passRound(size_t bytes, cudaStream_t stream) {
    const auto salt = static_cast<unsigned>(random_());
    const std::string sent = textOf(rank_, bytes, salt);
    std::string received(bytes, '-');
    if (rank_ == 0) {
      ASSERT_EQ(send(sent, stream), ok);
    }
    ASSERT_EQ(receive(received, stream), ok) << ncclGetLastError(comm_);
    if (rank_ != 0) {
      ASSERT_EQ(send(sent, stream), ok);
    }
    ASSERT_EQ(tuttiStreamSynchronize(stream), ok);
    ASSERT_EQ(received, textOf(previous_, bytes, salt));
  }
  void callOthers() {
    int value = rank_;
    ASSERT_EQ(ncclBroadcast(&value, &value, 1, ncclInt, 1, comm_, nullptr), ok);
    ASSERT_EQ(value, 1);
    ASSERT_EQ(ncclAllReduce(&rank_, &value, 1, ncclInt, ncclMin, comm_, nullptr), ok);
    ASSERT_EQ(value, 0);
  }

  int rank_;
  int next_;
  int previous_;
  ncclComm_t comm_;
  std::mt19937 random_;
  cudaStream_t stream_ = nullptr;
};

TEST(Again, MessagesAgainAndAgainAndAnyOtherCallInBetween) {
  for (const int ranks : {2, 3}) {
    RankThreads threads(ranks);
    threads.run([ranks](int rank, ncclComm_t comm) {
      RingOfMessages ring(rank, ranks, comm, static_cast<unsigned>(ranks));
      for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) ring.makeSome();
    });
  }
}

TEST(Again, TypesOfAMessageMayDifferWhereItsBytesDoNot) {
  RankThreads threads(2);
  threads.run([](int rank, ncclComm_t comm) {
    for (int i = 0; i < kRepeats; ++i) {
      int values[2] = {rank == 0 ? i : -1, rank == 0 ? -i : -1};
      const bool isGrouped = i % 3 == 2;
      if (isGrouped) (void)ncclGroupStart();
      ASSERT_EQ(rank == 0 ? ncclSend(values, 8, ncclInt8, 1, comm, nullptr) : ncclRecv(values, 2, ncclInt, 0, comm, nullptr), ok);
      const ncclResult_t ended = isGrouped ? ncclGroupEnd() : ok;
      ASSERT_EQ(ended, ok);
      ASSERT_EQ(values[0], i);
      ASSERT_EQ(values[1], -i);
    }
  });
}

// What rooted calls leave to be compared is the stream's thread's until they have ended.
TEST(Again, AMessageComesAfterRootedCallsOfAStream) {
  RankThreads threads(2);
  threads.run([](int rank, ncclComm_t comm) {
    cudaStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), ok);
    std::vector<int> values(kRepeats);
    for (int i = 0; i < kRepeats; ++i) {
      for (int& value : values) {
        value = rank == 0 ? i : -1;
        ASSERT_EQ(ncclBroadcast(&value, &value, 1, ncclInt, 0, comm, stream), ok);
      }
      int last = rank == 0 ? 0 : -1;
      ASSERT_EQ(rank == 0 ? ncclSend(&last, 1, ncclInt, 1, comm, nullptr) : ncclRecv(&last, 1, ncclInt, 0, comm, nullptr), ok);
      ASSERT_EQ(last, 0);
      ASSERT_EQ(values, std::vector<int>(values.size(), i)) << "made before the message";
    }
    ASSERT_EQ(tuttiStreamDestroy(stream), ok);
  });
}

// One thread has both ranks: their groups run together, in works that are kept, and short messages of each wait for the other's.
TEST(Again, GroupsOfSeveralRanksOnOneThread) {
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
  std::vector<int> in[2];
  std::vector<int> out[2];
  for (int i = 0; i < kRepeats; ++i) {
    const size_t count = i % 4 == 3 ? 30000 : 5;
    ASSERT_EQ(ncclGroupStart(), ok);
    for (int rank = 0; rank < 2; ++rank) {
      in[rank].assign(count, 100 * i + rank);
      out[rank].assign(count, -1);
      ASSERT_EQ(ncclRecv(out[rank].data(), count, ncclInt, 1 - rank, comms[rank], nullptr), ok);
      ASSERT_EQ(ncclSend(in[rank].data(), count, ncclInt, 1 - rank, comms[rank], nullptr), ok);
    }
    ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comms[0]);
    for (int rank = 0; rank < 2; ++rank) ASSERT_EQ(out[rank], in[1 - rank]);
  }
  for (ncclComm_t comm : comms) ASSERT_EQ(ncclCommDestroy(comm), ok);
}

TEST(Again, AMessageOfAnotherLengthThanThePeersIsTold) {
  for (const bool isGrouped : {false, true}) {
    RankThreads threads(2);
    threads.run([isGrouped](int rank, ncclComm_t comm) {
      char bytes[16] = {};
      const auto call = [&](size_t count) {
        if (isGrouped) (void)ncclGroupStart();
        const ncclResult_t result =
            rank == 0 ? ncclSend(bytes, count, ncclInt8, 1, comm, nullptr) : ncclRecv(bytes, count, ncclInt8, 0, comm, nullptr);
        return isGrouped ? ncclGroupEnd() : result;
      };
      for (int i = 0; i < kRepeats; ++i)
        for (const size_t count : {8, 12}) ASSERT_EQ(call(count), ok) << ncclGetLastError(comm);
      ncclResult_t result = call(rank == 0 ? 8 : 12);
      if (rank == 1) {
        EXPECT_EQ(result, ncclInvalidUsage);
        EXPECT_NE(std::string(ncclGetLastError(comm)).find("12"), std::string::npos) << ncclGetLastError(comm);
      }
      for (int i = 0; i < 1000 && result == ok; ++i) result = call(8);  // the sender hears of it by then
      EXPECT_NE(result, ok);
      EXPECT_NE(call(8), ok) << "and no message is passed any more";
    });
  }
}

TEST(Again, EndedCommunicatorsPassNoMessages) {
  for (const bool revokes : {true, false}) {
    RankThreads threads(2);
    threads.run([revokes](int rank, ncclComm_t comm) {
      int value = rank;
      for (int i = 0; i < kRepeats; ++i) {  // there and back, so that rank 1 has all of them when rank 0 goes on
        ASSERT_EQ(rank == 0 ? ncclSend(&value, 1, ncclInt, 1, comm, nullptr) : ncclRecv(&value, 1, ncclInt, 0, comm, nullptr), ok);
        ASSERT_EQ(rank == 1 ? ncclSend(&value, 1, ncclInt, 0, comm, nullptr) : ncclRecv(&value, 1, ncclInt, 1, comm, nullptr), ok);
      }
      if (rank == 1) return;
      EXPECT_TRUE(refused(ncclSend(nullptr, 1, ncclInt, 1, comm, nullptr), ncclInvalidArgument, {"sendbuff"}));
      ASSERT_EQ(revokes ? ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) : ncclCommFinalize(comm), ok);
      EXPECT_TRUE(refused(ncclSend(&value, 1, ncclInt, 1, comm, nullptr), ncclInvalidUsage, {revokes ? "revoked" : "finalized"}));
    });
  }
}

/// One rank alone, whose calls all go their short way.
class Alone : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ok) << ncclGetLastError(nullptr);
    for (int i = 0; i < kRepeats; ++i) ASSERT_EQ(call(), ok);
  }
  ncclResult_t call() { return ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, comm, nullptr); }
  ncclComm_t comm = nullptr;
  int in = 3;
  int out = 0;
};

TEST_F(Alone, ArgumentsAreCheckedInEveryCall) {
  EXPECT_TRUE(refused(ncclAllReduce(nullptr, &out, 1, ncclInt, ncclSum, comm, nullptr), ncclInvalidArgument, {"sendbuff"}));
  EXPECT_TRUE(refused(ncclAllReduce(&in, nullptr, 1, ncclInt, ncclSum, comm, nullptr), ncclInvalidArgument, {"recvbuff"}));
  EXPECT_TRUE(refused(ncclAllReduce(&in, &out, 1, enumOf<ncclDataType_t>(99), ncclSum, comm, nullptr), ncclInvalidArgument, {"99"}));
  EXPECT_TRUE(refused(ncclAllReduce(&in, &out, 1, ncclInt, enumOf<ncclRedOp_t>(77), comm, nullptr), ncclInvalidArgument, {"77"}));
  EXPECT_TRUE(refused(ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, nullptr, nullptr), ncclInvalidArgument, {"NULL"}));
  auto* const beside = reinterpret_cast<ncclComm_t>(reinterpret_cast<char*>(comm) + 1);
  EXPECT_TRUE(refused(ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, beside, nullptr), ncclInvalidArgument, {"no communicator"}));
  out = 0;
  EXPECT_EQ(call(), ok);
  EXPECT_EQ(out, 3);
  EXPECT_EQ(ncclCommDestroy(comm), ok);
}

TEST_F(Alone, EndedCommunicatorsAreRefused) {
  EXPECT_EQ(ncclCommFinalize(comm), ok);
  EXPECT_TRUE(refused(call(), ncclInvalidUsage, {"finalized"}));
  EXPECT_EQ(ncclCommDestroy(comm), ok);
  EXPECT_TRUE(refused(call(), ncclInvalidArgument, {"destroyed"}));
  SetUp();
  EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ok);
  EXPECT_TRUE(refused(call(), ncclInvalidUsage, {"revoked"}));
  EXPECT_EQ(ncclCommAbort(comm), ok);
  EXPECT_TRUE(refused(call(), ncclInvalidArgument, {"aborted"}));
}

TEST_F(Alone, AForkedProcessIsRefused) {
  const pid_t child = fork();
  if (child == 0) _exit(call() == ncclInvalidUsage ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(call(), ok);
  EXPECT_EQ(ncclCommDestroy(comm), ok);
}

TEST(Again, AnAbortFromAnotherThreadEndsARowOfCalls) {
  for (int round = 0; round < 30; ++round) {
    runWithin(30, "abort of a row of calls", [&] {
      ncclComm_t comms[2];
      ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
      std::atomic<int> made{0};
      std::vector<std::thread> owners;
      for (ncclComm_t comm : comms) {
        owners.emplace_back([&made, comm, round, first = comms[0]] {
          int value[2] = {1, 2};
          ncclResult_t result = ok;
          while (result == ok) {
            const int peer = comm == first ? 1 : 0;
            if (round % 4 == 2) {
              result = peer == 1 ? ncclSend(value, 2, ncclInt, peer, comm, nullptr) : ncclRecv(value, 2, ncclInt, peer, comm, nullptr);
            } else if (round % 4 == 3) {
              const ncclResult_t added[] = {ncclGroupStart(), ncclSend(value, 1, ncclInt, peer, comm, nullptr),
                                            ncclRecv(value + 1, 1, ncclInt, peer, comm, nullptr)};
              result = ncclGroupEnd();
              for (const ncclResult_t one : added) result = one == ok ? result : one;
            } else {
              result = round % 4 == 0 ? ncclBroadcast(value, value, 2, ncclInt, 0, comm, nullptr)
                                      : ncclAllReduce(value, value, 2, ncclInt, ncclMax, comm, nullptr);
            }
            made.fetch_add(1, std::memory_order_relaxed);
          }
          const bool isInBetween = round % 4 == 3 && result == ncclInvalidUsage;  // after the group's calls and before its end
          EXPECT_TRUE(result == ncclRemoteError || result == ncclInvalidArgument || isInBetween)
              << result << ": " << ncclGetLastError(nullptr);
        });
      }
      while (made.load(std::memory_order_relaxed) < 100 * (round % 7)) std::this_thread::yield();
      EXPECT_EQ(ncclCommAbort(comms[round % 2]), ok);
      for (std::thread& owner : owners) owner.join();
      EXPECT_EQ(ncclCommAbort(comms[1 - round % 2]), ok);
    });
  }
}

TEST(Again, WhoIsToldOfAnErrorMayTakeTheBuffersAway) {
  static constexpr size_t kBytes = 8192;
  runWithin(60, "a watcher beside rows of calls", [&] {
    for (int round = 0; round < 300; ++round) {
      ncclComm_t comms[2];
      ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
      float* memory[2];
      for (float*& m : memory) {
        void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        ASSERT_NE(mapped, MAP_FAILED);
        m = static_cast<float*>(mapped);
      }
      std::atomic<int> made{0};
      std::vector<std::thread> threads;
      for (int r = 0; r < 2; ++r) {
        threads.emplace_back([&made, comm = comms[r], m = memory[r]] {
          while (ncclAllReduce(m, m + 1024, 1000, ncclFloat, ncclSum, comm, nullptr) == ok) made.fetch_add(1, std::memory_order_relaxed);
        });
      }
      threads.emplace_back([comm = comms[0], m = memory[0]] {
        ncclResult_t state = ok;
        while (ncclCommGetAsyncError(comm, &state) == ok && state == ok) {
        }
        (void)mprotect(m, kBytes, PROT_NONE);  // a call that still uses them ends this process
      });
      while (made.load(std::memory_order_relaxed) < 20 + round % 50) std::this_thread::yield();
      EXPECT_EQ(ncclCommAbort(comms[1]), ok);
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(ncclCommAbort(comms[0]), ok);
      for (float* m : memory) EXPECT_EQ(munmap(m, kBytes), 0);
    }
  });
}

TEST(Again, AThreadMayTakeACommunicatorOver) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ok);
  for (int thread = 0; thread < 20; ++thread) {
    std::thread([&] {
      int in = thread;
      int out = -1;
      for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, comm, nullptr), ok);
        ASSERT_EQ(out, thread);
      }
    }).join();
  }
  EXPECT_EQ(ncclCommDestroy(comm), ok);
}

}  // namespace
}  // namespace tutti::api_test::again_test
