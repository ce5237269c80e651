// Ranks that make different calls are both told, with a text that quotes both calls; nobody waits for ever, and no wrong result
// is returned silently.
#include <cstdlib>
#include <functional>
#include <memory>

#include "api/api_fixture.h"

namespace tutti::api_test::mismatch_test {
namespace {

using conformance::RankThreads;
using Call = std::function<ncclResult_t(ncclComm_t)>;

struct Outcome {
  ncclResult_t results[2] = {};
  ncclResult_t states[2] = {};
  std::string text;
};

/// Rank 0 makes one call and rank 1 the other, on a new communicator.
Outcome run(const Call& first, const Call& second, const std::string& algorithms = "") {
  Outcome outcome;
  RankThreads threads(2, algorithms);
  threads.run([&](int rank, ncclComm_t comm) {
    if (rank == 0) threads.announce("two calls that do not match");
    outcome.results[rank] = (rank == 0 ? first : second)(comm);
    threads.meet();
    EXPECT_EQ(ncclCommGetAsyncError(comm, &outcome.states[rank]), ok);
  });
  outcome.text = ncclGetLastError(nullptr);
  return outcome;
}

/// Both ranks are told. A rank that only sends may have returned before its peer noticed: its state tells it then.
void expectTold(const Outcome& outcome, std::initializer_list<std::string_view> words, bool oneOnlySends = false) {
  EXPECT_TRUE(outcome.results[0] == ncclInvalidUsage || outcome.results[1] == ncclInvalidUsage) << outcome.text;
  for (int rank = 0; rank < 2; ++rank) {
    if (!oneOnlySends) {
      EXPECT_EQ(outcome.results[rank], ncclInvalidUsage) << "rank " << rank << ": " << outcome.text;
    }
    EXPECT_EQ(outcome.states[rank], ncclInvalidUsage) << "state of rank " << rank;
  }
  for (const std::string_view word : words)
    EXPECT_NE(outcome.text.find(word), std::string::npos) << "no '" << word << "' in: " << outcome.text;
}

/// Memory that is large enough for every call below. One per thread; pages that no call touches cost nothing.
char* memory() {
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  thread_local const std::unique_ptr<char, Free> buffer(static_cast<char*>(std::calloc(64 << 20, 1)));
  return buffer.get();
}
const char* input() { return memory(); }
char* output() { return memory() + (32 << 20); }

Call allReduce(size_t count, ncclDataType_t type = ncclInt, ncclRedOp_t op = ncclSum) {
  return [=](ncclComm_t comm) { return ncclAllReduce(input(), output(), count, type, op, comm, nullptr); };
}
Call broadcast(size_t count, int root) {
  return [=](ncclComm_t comm) { return ncclBroadcast(input(), output(), count, ncclInt, root, comm, nullptr); };
}

class Mismatch : public testing::TestWithParam<const char*> {
 protected:
  std::string force() const { return std::string("allreduce:") + GetParam(); }
};

TEST_P(Mismatch, Counts) {
  expectTold(run(allReduce(32), allReduce(16), force()), {"32", "16"});
  expectTold(run(allReduce(1), allReduce(100000), force()), {" 1 ", "100000"});
  expectTold(run(allReduce(1000000), allReduce(1000001), force()), {"1000000", "1000001"});
}

TEST_P(Mismatch, Types) {
  expectTold(run(allReduce(64, ncclInt), allReduce(64, ncclFloat), force()), {"int32", "float"});
  expectTold(run(allReduce(64, ncclInt64), allReduce(64, ncclInt8), force()), {"int64", "int8"});
}

TEST_P(Mismatch, Operations) {
  expectTold(run(allReduce(64, ncclInt, ncclSum), allReduce(64, ncclInt, ncclMax), force()), {"sum", "max"});
  expectTold(run(allReduce(64, ncclFloat, ncclSum), allReduce(64, ncclFloat, ncclAvg), force()), {"sum", "avg"});
}

// More elements than the low bits of any compact signature hold.
TEST_P(Mismatch, HugeCountsThatShareTheirLowBits) {
  const size_t base = size_t{1} << 24;
  expectTold(run(allReduce(base, ncclInt8), allReduce(base + (size_t{1} << 23), ncclInt8), force()), {});
  expectTold(run(allReduce(64, ncclInt8), allReduce(base + 64, ncclInt8), force()), {});
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Mismatch, testing::Values("ring", "tree", "oneshot"),
                         [](const auto& p) { return std::string(p.param); });

TEST(MismatchOf, AlgorithmsThatNeverMeet) {
  // By default a small all-reduce is one-shot and a large one a ring: they use neither the same pipes nor the same windows.
  expectTold(run(allReduce(2), allReduce(4 << 20)), {"2", "4194304"});
}

TEST(MismatchOf, Collectives) {
  const Call gather = [](ncclComm_t comm) { return ncclAllGather(input(), output(), 64, ncclInt, comm, nullptr); };
  const Call scatter = [](ncclComm_t comm) { return ncclReduceScatter(input(), output(), 64, ncclInt, ncclSum, comm, nullptr); };
  const Call exchange = [](ncclComm_t comm) { return ncclAlltoAll(input(), output(), 64, ncclInt, comm, nullptr); };
  expectTold(run(allReduce(64), gather), {"AllReduce", "AllGather"});
  expectTold(run(gather, scatter), {"AllGather", "ReduceScatter"});
  expectTold(run(exchange, allReduce(4 << 20)), {"AlltoAll", "AllReduce"});
  expectTold(run(broadcast(64, 0), scatter), {"Broadcast", "ReduceScatter"}, true);
}

// Each side believes to be the root and only sends: nobody reads what would tell. The next call, or the end, does.
TEST(MismatchOf, RootsAreToldByTheNextCallAtTheLatest) {
  using Rooted = ncclResult_t (*)(int root, ncclComm_t comm);
  const Rooted calls[] = {
      [](int root, ncclComm_t comm) { return ncclBroadcast(input(), output(), 64, ncclInt, root, comm, nullptr); },
      [](int root, ncclComm_t comm) { return ncclReduce(input(), output(), 64, ncclInt, ncclSum, root, comm, nullptr); },
      [](int root, ncclComm_t comm) { return ncclGather(input(), output(), 64, ncclInt, root, comm, nullptr); },
      [](int root, ncclComm_t comm) { return ncclScatter(input(), output(), 64, ncclInt, root, comm, nullptr); },
  };
  for (const Rooted call : calls) {
    for (const bool swapped : {false, true}) {
      const auto rooted = [&](int root) {
        return Call([=](ncclComm_t comm) {
          const ncclResult_t first = call(root, comm);
          return first != ok ? first : allReduce(1)(comm);
        });
      };
      expectTold(run(rooted(swapped ? 1 : 0), rooted(swapped ? 0 : 1)), {"root 0", "root 1"});
    }
  }
}

TEST(MismatchOf, Messages) {
  const auto send = [](size_t count) {
    return Call([=](ncclComm_t comm) { return ncclSend(input(), count, ncclInt8, 1, comm, nullptr); });
  };
  const auto recv = [](size_t count) {
    return Call([=](ncclComm_t comm) { return ncclRecv(output(), count, ncclInt8, 0, comm, nullptr); });
  };
  expectTold(run(send(64), recv(32)), {"64", "32"}, true);
  expectTold(run(send(0), recv(1)), {"0", "1"}, true);
  expectTold(run(send(9000000), recv(9000001)), {"9000000", "9000001"}, true);
  expectTold(run(send(100), recv(20000000)), {"100", "20000000"}, true);
}

// The order of calls differs: sequence numbers tell. After the error the communicator is of no more use, and says so.
TEST(MismatchOf, OrderAndWhatComesAfter) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    const Call calls[2] = {allReduce(8), broadcast(8, 0)};
    const ncclResult_t one = calls[rank](comm);
    const ncclResult_t two = calls[1 - rank](comm);
    EXPECT_EQ(one, ncclInvalidUsage);
    EXPECT_EQ(two, ncclInvalidUsage) << "the first error stays";
    int value = 0;
    EXPECT_EQ(ncclCommCount(comm, &value), ok) << "queries still work";
  });
}

// A call that only one rank makes, followed by one that both make.
TEST(MismatchOf, ACallThatOnlyOneRankMakes) {
  const Call twice = [](ncclComm_t comm) {
    const ncclResult_t first = allReduce(8)(comm);
    return first != ok ? first : broadcast(8, 0)(comm);
  };
  const Call other = [](ncclComm_t comm) { return broadcast(8, 0)(comm); };
  expectTold(run(twice, other), {"AllReduce", "Broadcast"});
}

// In a group and on a stream the error comes back where the work is waited for.
TEST(MismatchOf, OnStreams) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    cudaStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), ok);
    (void)ncclAllReduce(input(), output(), rank == 0 ? 8 : 9, ncclInt, ncclSum, comm, stream);
    EXPECT_EQ(tuttiStreamSynchronize(stream), ncclInvalidUsage);
    ncclResult_t state = ok;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ok);
    EXPECT_EQ(state, ncclInvalidUsage);
    EXPECT_EQ(tuttiStreamDestroy(stream), ok);
  });
}

}  // namespace
}  // namespace tutti::api_test::mismatch_test
