// Captured messages that go straight to buffers which receivers lend their senders, between stages that streams carry out: all bytes in
// every replay, in whatever groups, and kernels where a buffer is not lent or only one side captures.
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "conformance/gpu/lending_rank.h"

namespace tutti::conformance::lent_test {
namespace {

/// The `number`th message of a direction in a group.
struct Message {
  int from = 0;
  int to = 0;
  int number = 0;
  size_t bytes = 0;
  size_t sendAskew = 0;     ///< bytes beyond a vector
  size_t receiveAskew = 0;  ///< the same
};

/// Buffers of a rank: by peer and number, each with room for kLarge.
constexpr size_t kLarge = 40'000;
size_t placeOf(int peer, int number) { return static_cast<size_t>(peer * 4 + number) * (kLarge + 1024); }
std::byte contentAt(const Message& m, uint64_t turn, size_t i) {
  return static_cast<std::byte>(i * 7 + i / 251 + static_cast<size_t>(m.from * 31 + m.to * 17 + m.number * 5) + turn * 13);
}

std::byte* sendBuffer(const LendingRank& rank, const Message& m) { return rank.in + placeOf(m.to, m.number) + m.sendAskew; }
std::byte* recvBuffer(const LendingRank& rank, const Message& m) { return rank.out + placeOf(m.from, m.number) + m.receiveAskew; }

/// In one group, as this rank has them.
void issue(const LendingRank& rank, int self, const std::vector<Message>& messages) {
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (const Message& m : messages) {
    if (m.from == self) {
      ASSERT_EQ(ncclSend(sendBuffer(rank, m), m.bytes, ncclUint8, m.to, rank.comm, rank.stream), ncclSuccess);
    }
    if (m.to == self) {
      ASSERT_EQ(ncclRecv(recvBuffer(rank, m), m.bytes, ncclUint8, m.from, rank.comm, rank.stream), ncclSuccess);
    }
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(rank.comm);
}

void fill(const LendingRank& rank, int self, const std::vector<Message>& messages, uint64_t turn) {
  std::memset(rank.out, static_cast<int>(kPoison), kRoom);
  for (const Message& m : messages)
    for (size_t i = 0; m.from == self && i < m.bytes; ++i) sendBuffer(rank, m)[i] = contentAt(m, turn, i);
}

void expectAll(const LendingRank& rank, int self, const std::vector<Message>& messages, uint64_t turn) {
  for (const Message& m : messages) {
    if (m.to != self) continue;
    const std::byte* const got = recvBuffer(rank, m);
    size_t i = 0;
    while (i < m.bytes && got[i] == contentAt(m, turn, i)) ++i;
    ASSERT_EQ(i, m.bytes) << "message " << m.number << " of " << m.from << " to " << m.to << ", turn " << turn;
    ASSERT_TRUE(std::all_of(got + m.bytes, got + m.bytes + 256, [](std::byte b) { return b == kPoison; }));
  }
}

void runGraph(ProcessRanks::Self& self, LendingRank& rank, const std::vector<Message>& messages, bool isLent) {
  const auto before = launches();
  const Graph graph = rank.capture([&] { issue(rank, self.index(), messages); });
  const bool hasPart = std::ranges::any_of(messages, [&](const Message& m) { return m.from == self.index() || m.to == self.index(); });
  EXPECT_EQ(launches().first != before.first, hasPart && isLent) << "stages";
  EXPECT_EQ(launches().second != before.second, hasPart && !isLent);
  for (uint64_t turn = 0; turn < 3; ++turn) {
    fill(rank, self.index(), messages, turn);
    ASSERT_EQ(rank.gpus.driver().launchGraph(graph, rank.stream), Error::Success);
    synchronize(rank.gpus, rank.stream);
    ASSERT_NO_FATAL_FAILURE(expectAll(rank, self.index(), messages, turn));
  }
  rank.destroy(graph);
}

/// Outputs in memory of which its owner has not said that it may be shared.
class PrivateOutputs {
 public:
  PrivateOutputs(LendingRank& rank, int device) : rank_(rank) {
    using namespace driver::cuda;
    FakeApi& fake = rank.gpus.driver();
    AllocationProp prop;
    prop.type = AllocationType::Pinned;
    prop.location = {LocationType::OnDevice, device};
    AccessDesc access;
    access.location = prop.location;
    access.flags = Access::ReadWrite;
    EXPECT_EQ(fake.memAddressReserve(&base_, kBytes, 0, 0, 0), Error::Success);
    EXPECT_EQ(fake.memCreate(&handle_, kBytes, &prop, 0), Error::Success);
    EXPECT_EQ(fake.memMap(base_, kBytes, 0, handle_, 0), Error::Success);
    EXPECT_EQ(fake.memSetAccess(base_, kBytes, &access, 1), Error::Success);
    shared_ = std::exchange(rank.out, reinterpret_cast<std::byte*>(base_));
  }
  ~PrivateOutputs() {
    driver::cuda::FakeApi& fake = rank_.gpus.driver();
    rank_.out = shared_;
    EXPECT_EQ(fake.memUnmap(base_, kBytes), Error::Success);
    EXPECT_EQ(fake.memRelease(handle_), Error::Success);
    EXPECT_EQ(fake.memAddressFree(base_, kBytes), Error::Success);
  }
  PrivateOutputs(const PrivateOutputs&) = delete;
  PrivateOutputs& operator=(const PrivateOutputs&) = delete;

 private:
  static constexpr size_t kBytes = size_t{2} << 20;
  LendingRank& rank_;
  DevicePtr base_ = 0;
  driver::cuda::MemHandle handle_{};
  std::byte* shared_ = nullptr;
};

/// Whoever opens another communicator looks after what was left.
void openAndClose(ProcessRanks::Self& self) {
  for (int stage = 2; stage < 4; ++stage) {
    self.meet(stage);
    ncclComm_t other = nullptr;
    ASSERT_EQ(ncclCommInitRank(&other, 2, self.freshId(), self.index()), ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_EQ(ncclCommDestroy(other), ncclSuccess);
  }
}

/// Ranks whose captured messages are lent wherever they can be.
void onLendingRanks(int ranks, const std::function<void(ProcessRanks::Self&, LendingRank&)>& body, Memory memory = Memory::Plain) {
  const ScopedSetting stages("TUTTI_STREAM_STAGES", "1");
  const ScopedSetting engines("TUTTI_COPY_ENGINES", "1");
  onRanks(ranks, memory, body, "-1");
}

std::vector<Message> ring(int ranks, size_t bytes) {
  std::vector<Message> all;
  for (int r = 0; r < ranks; ++r) all.push_back({r, (r + 1) % ranks, 0, bytes});
  return all;
}

class GpuLentMessages : public testing::TestWithParam<std::tuple<int, Memory>> {};

TEST_P(GpuLentMessages, EveryReplayBringsThem) {
  const auto& [ranks, memory] = GetParam();
  onLendingRanks(
      ranks,
      [](ProcessRanks::Self& self, LendingRank& rank) {
        for (const size_t bytes : {size_t{1}, size_t{1007}, kLarge})
          ASSERT_NO_FATAL_FAILURE(runGraph(self, rank, ring(self.count(), bytes), true));
        ASSERT_NO_FATAL_FAILURE(runGraph(self, rank, {{0, 1, 0, kLarge, 1, 3}}, true));  // to engines any byte is as good
      },
      memory);
}

/// To one peer, and from another one.
TEST_P(GpuLentMessages, OfAllRanksAtOnce) {
  const auto& [ranks, memory] = GetParam();
  onLendingRanks(
      ranks,
      [](ProcessRanks::Self& self, LendingRank& rank) {
        std::vector<Message> all = ring(self.count(), 3001);
        for (size_t i = 0; i < all.size(); ++i) all[i].bytes += 16 * i;
        if (self.index() % 2 == 1) std::ranges::reverse(all);
        ASSERT_NO_FATAL_FAILURE(runGraph(self, rank, all, true));
      },
      memory);
}

INSTANTIATE_TEST_SUITE_P(Ways, GpuLentMessages, testing::Combine(testing::Values(2, 3), testing::Values(Memory::Plain, Memory::Exported)),
                         [](const auto& made) {
                           return format("{}{}", std::get<1>(made.param) == Memory::Plain ? "Plain" : "Exported", std::get<0>(made.param));
                         });

/// With collectives, and eager messages between the replays.
TEST(GpuLentMessageGroups, GoWithOtherCalls) {
  onLendingRanks(2, [](ProcessRanks::Self& self, LendingRank& rank) {
    const std::vector<Message> messages{{0, 1, 0, 5000}, {1, 0, 0, 7000}};
    std::byte* const terms = rank.allocate();
    std::byte* const sums = rank.allocate();
    const Graph graph = rank.capture([&] {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      ASSERT_EQ(ncclAllReduce(terms, sums, 1000, ncclUint8, ncclSum, rank.comm, rank.stream), ncclSuccess);
      issue(rank, self.index(), messages);
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(rank.comm);
    });
    for (uint64_t turn = 0; turn < 3; ++turn) {
      fill(rank, self.index(), messages, turn);
      std::memset(terms, static_cast<int>(turn) + self.index(), 1000);
      ASSERT_EQ(rank.gpus.driver().launchGraph(graph, rank.stream), Error::Success);
      synchronize(rank.gpus, rank.stream);
      ASSERT_NO_FATAL_FAILURE(expectAll(rank, self.index(), messages, turn));
      EXPECT_EQ(sums[999], static_cast<std::byte>(2 * turn + 1));
      const std::vector<Message> eager = ring(2, 2000);
      fill(rank, self.index(), eager, turn + 10);
      ASSERT_NO_FATAL_FAILURE(issue(rank, self.index(), eager));
      synchronize(rank.gpus, rank.stream);
      ASSERT_NO_FATAL_FAILURE(expectAll(rank, self.index(), eager, turn + 10));
    }
    rank.destroy(graph);
    self.meet(1);
    rank.free(terms);
    rank.free(sums);
  });
}

/// One group of calls after the other, in one graph.
void runGroups(ProcessRanks::Self& self, LendingRank& rank, const std::vector<std::vector<Message>>& groups) {
  const Graph graph = rank.capture([&] {
    for (const auto& group : groups) issue(rank, self.index(), group);
  });
  for (uint64_t turn = 0; turn < 3; ++turn) {
    std::vector<Message> all;
    for (const auto& group : groups) all.insert(all.end(), group.begin(), group.end());
    fill(rank, self.index(), all, turn);
    ASSERT_EQ(rank.gpus.driver().launchGraph(graph, rank.stream), Error::Success);
    synchronize(rank.gpus, rank.stream);
    ASSERT_NO_FATAL_FAILURE(expectAll(rank, self.index(), all, turn));
  }
  rank.destroy(graph);
}

/// What one side has in a group the other may have one by one.
TEST(GpuLentMessagesNot, WhereAGroupHasSeveralToOneSide) {
  onLendingRanks(2, [](ProcessRanks::Self& self, LendingRank& rank) {
    const Message header{0, 1, 0, 64};
    const Message payload{0, 1, 1, kLarge};
    for (const int grouping : {0, 1, 2}) {
      const bool isGrouped = grouping == 2 || grouping == self.index();
      const auto groups =
          isGrouped ? std::vector<std::vector<Message>>{{header, payload}} : std::vector<std::vector<Message>>{{header}, {payload}};
      ASSERT_NO_FATAL_FAILURE(runGroups(self, rank, groups)) << grouping;
    }
  });
}

TEST(GpuLentMessagesNot, WhereOneMayComeBehindAnother) {
  onLendingRanks(3, [](ProcessRanks::Self& self, LendingRank& rank) {
    const Message m{0, 1, 0, 5000}, n{0, 2, 0, 6000}, y{1, 2, 0, 7000};
    const std::vector<std::vector<Message>> groups[] = {{{m, n}}, {{m}, {y}}, {{y}, {n}}};
    ASSERT_NO_FATAL_FAILURE(runGroups(self, rank, groups[self.index()]));
  });
}

/// Of a group's two messages one is lent and the other one is not. (That neither waits for the other cannot be played here: the fake
/// carries out a graph's branches one after the other.)
TEST(GpuLentMessageGroups, GoBesideThoseOfKernels) {
  onLendingRanks(2, [](ProcessRanks::Self& self, LendingRank& rank) {
    const Message lent{0, 1, 0, kLarge}, other{1, 0, 0, kLarge};
    std::optional<PrivateOutputs> outputs;
    if (self.index() == 0) outputs.emplace(rank, 0);
    const auto before = launches();
    const std::vector<std::vector<Message>> groups[] = {{{lent, other}}, {{other}, {lent}}};
    ASSERT_NO_FATAL_FAILURE(runGroups(self, rank, groups[self.index()]));
    EXPECT_NE(launches().first, before.first);
    EXPECT_NE(launches().second, before.second);
  });
}

/// As all-to-alls that are put together of messages have them.
TEST(GpuLentMessageGroups, MayHaveSomeToTheRankItself) {
  onLendingRanks(2, [](ProcessRanks::Self& self, LendingRank& rank) {
    const auto began = std::chrono::steady_clock::now();
    std::vector<Message> all = ring(2, 5000);
    all.push_back({0, 0, 0, 5000});
    all.push_back({1, 1, 0, 5000});
    const auto before = launches();
    ASSERT_NO_FATAL_FAILURE(runGroups(self, rank, {all}));
    EXPECT_NE(launches().first, before.first) << "those between the two are lent";
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(800)) << "nobody is waited for";
  });
}

/// What comes of nothing is opened as it is for kernels, whichever rank begins with what.
TEST(GpuLentMessagesNot, WhereNeitherSidesBufferCanBe) {
  onLendingRanks(2, [](ProcessRanks::Self& self, LendingRank& rank) {
    const PrivateOutputs outputs(rank, self.index());
    ASSERT_NO_FATAL_FAILURE(runGraph(self, rank, ring(2, 5000), false));
  });
}

TEST(GpuLentMessagesNot, WhereOneSideCapturesMuchLater) {
  onLendingRanks(2, [](ProcessRanks::Self& self, LendingRank& rank) {
    if (self.index() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    ASSERT_NO_FATAL_FAILURE(runGraph(self, rank, ring(2, 5000), false));
  });
}

/// A deadline is not used up by waiting for what need not come.
TEST(GpuLentMessagesNot, WhereADeadlineIsShorterThanTheWait) {
  onLendingRanks(2, [](ProcessRanks::Self& self, LendingRank& rank) {
    const std::vector<Message> messages{{0, 1, 0, 5000}};
    const auto bring = [&](uint64_t turn) {
      fill(rank, self.index(), messages, turn);
      issue(rank, self.index(), messages);
      synchronize(rank.gpus, rank.stream);
      expectAll(rank, self.index(), messages, turn);
    };
    bring(0);  // so the pipes are open
    if (self.index() == 0) {
      ASSERT_EQ(tuttiCommSetTimeout(rank.comm, 600), ncclSuccess);
      const Graph graph = rank.capture([&] { issue(rank, 0, messages); });
      ASSERT_EQ(tuttiCommSetTimeout(rank.comm, 0), ncclSuccess);
      fill(rank, 0, messages, 1);
      ASSERT_EQ(rank.gpus.driver().launchGraph(graph, rank.stream), Error::Success);
      synchronize(rank.gpus, rank.stream);
      rank.destroy(graph);
    } else {
      bring(1);
    }
  });
}

/// One side has made more of them by then: what it captures is not what the other one does.
TEST(GpuLentMessagesNot, WhereTheTwoCaptureOtherMessages) {
  onLendingRanks(2, [](ProcessRanks::Self& self, LendingRank& rank) {
    const std::vector<Message> messages{{0, 1, 0, 5000}};
    const auto launch = [&](Graph graph) { ASSERT_EQ(rank.gpus.driver().launchGraph(graph, rank.stream), Error::Success); };
    const auto finish = [&](uint64_t turn) {
      synchronize(rank.gpus, rank.stream);
      expectAll(rank, self.index(), messages, turn);
    };
    fill(rank, self.index(), messages, 0);
    issue(rank, self.index(), messages);  // so the pipes are open
    finish(0);
    self.meet(1);
    fill(rank, self.index(), messages, 1);
    self.meet(2);
    Graph first = nullptr;
    Graph last = nullptr;
    if (self.index() == 0) {
      first = rank.capture([&] { issue(rank, 0, messages); });
      launch(first);
      launch(first);
      last = rank.capture([&] { issue(rank, 0, messages); });
    } else {
      issue(rank, 1, messages);
      issue(rank, 1, messages);
      last = rank.capture([&] { issue(rank, 1, messages); });  // while the other one waits with its first
    }
    finish(1);
    self.meet(3);
    fill(rank, self.index(), messages, 2);
    self.meet(4);
    launch(last);
    finish(2);
    if (first != nullptr) rank.destroy(first);
    rank.destroy(last);
  });
}

TEST(GpuLentMessagesNot, WhereTheReceiversBufferCannotBe) {
  onLendingRanks(2, [](ProcessRanks::Self& self, LendingRank& rank) {
    std::optional<PrivateOutputs> outputs;
    if (self.index() == 1) outputs.emplace(rank, 1);
    ASSERT_NO_FATAL_FAILURE(runGraph(self, rank, {{0, 1, 0, 5000}}, false));
    outputs.reset();
    ASSERT_NO_FATAL_FAILURE(runGraph(self, rank, {{0, 1, 0, 5000}}, true));  // the next may well be
  });
}

TEST(GpuLentMessagesNot, WhereTheUserForbidsIt) {
  for (const char* name : {"NCCL_GRAPH_REGISTER", "NCCL_LEGACY_CUDA_REGISTER"}) {
    const ScopedSetting no(name, "0");
    onLendingRanks(
        2, [](ProcessRanks::Self& self, LendingRank& rank) { ASSERT_NO_FATAL_FAILURE(runGraph(self, rank, ring(2, 5000), false)); });
  }
}

TEST(GpuLentMessagesNot, WhereKernelsAreFaster) {
  const ScopedSetting stages("TUTTI_STREAM_STAGES", "-1");
  onRanks(2, Memory::Plain,
          [](ProcessRanks::Self& self, LendingRank& rank) { ASSERT_NO_FATAL_FAILURE(runGraph(self, rank, ring(2, kLarge), false)); });
}

/// One side waits a moment for the other one, once: what it captures then goes with what the other launches.
TEST(GpuLentMessagesNot, WhereOnlyOneSideCaptures) {
  using Clock = std::chrono::steady_clock;
  for (const int capturing : {0, 1}) {
    onLendingRanks(2, [capturing](ProcessRanks::Self& self, LendingRank& rank) {
      const std::vector<Message> messages{{0, 1, 0, 5000}};
      if (self.index() == capturing) {
        std::vector<Graph> graphs;
        for (int round = 0; round < 3; ++round) {
          const auto began = Clock::now();
          graphs.push_back(rank.capture([&] { issue(rank, self.index(), messages); }));
          EXPECT_EQ(Clock::now() - began > std::chrono::milliseconds(800), round == 0);
        }
        for (uint64_t turn = 0; turn < 3; ++turn) {
          fill(rank, self.index(), messages, turn);
          ASSERT_EQ(rank.gpus.driver().launchGraph(graphs[turn], rank.stream), Error::Success);
          synchronize(rank.gpus, rank.stream);
          ASSERT_NO_FATAL_FAILURE(expectAll(rank, self.index(), messages, turn));
        }
        for (const Graph graph : graphs) rank.destroy(graph);
      } else {
        for (uint64_t turn = 0; turn < 3; ++turn) {
          fill(rank, self.index(), messages, turn);
          ASSERT_NO_FATAL_FAILURE(issue(rank, self.index(), messages));
          synchronize(rank.gpus, rank.stream);
          ASSERT_NO_FATAL_FAILURE(expectAll(rank, self.index(), messages, turn));
        }
      }
      self.meet(1);
      ASSERT_NO_FATAL_FAILURE(runGraph(self, rank, messages, false)) << "from then on, also where both capture";
      ASSERT_NO_FATAL_FAILURE(runGraph(self, rank, {{1, 0, 0, 5000}}, true)) << "the other direction";
    });
  }
}

/// As in pipelines: each captures what it receives, and sends on, in an order of its own.
TEST(GpuLentMessageGroups, OfGraphsThatRanksCaptureInAnotherOrder) {
  onLendingRanks(3, [](ProcessRanks::Self& self, LendingRank& rank) {
    const std::vector<Message> first{{0, 1, 0, 4000}};
    const std::vector<Message> second{{1, 2, 0, 6000}};
    std::vector<const std::vector<Message>*> order{&first, &second};
    if (self.index() == 1) std::swap(order[0], order[1]);  // which no rank minds that has one of them alone
    std::vector<Graph> graphs;
    for (const auto* messages : order) graphs.push_back(rank.capture([&] { issue(rank, self.index(), *messages); }));
    for (uint64_t turn = 0; turn < 3; ++turn)
      for (size_t i = 0; i < order.size(); ++i) {
        const auto& messages = *order[self.index() == 1 ? 1 - i : i];
        fill(rank, self.index(), messages, turn);
        ASSERT_EQ(rank.gpus.driver().launchGraph(graphs[self.index() == 1 ? 1 - i : i], rank.stream), Error::Success);
        synchronize(rank.gpus, rank.stream);
        ASSERT_NO_FATAL_FAILURE(expectAll(rank, self.index(), messages, turn));
      }
    for (const Graph graph : graphs) rank.destroy(graph);
  });
}

/// Graphs of one direction are launched in one order.
TEST(GpuLentMessageEnds, AnotherGraphsMessageIsNoticed) {
  onLendingRanks(2, [](ProcessRanks::Self& self, LendingRank& rank) {
    const std::vector<Message> messages{{0, 1, 0, 5000}};
    const Graph first = rank.capture([&] { issue(rank, self.index(), messages); });
    const Graph second = rank.capture([&] { issue(rank, self.index(), messages); });
    ASSERT_EQ(rank.gpus.driver().launchGraph(self.index() == 0 ? first : second, rank.stream), Error::Success);
    ncclResult_t state = ncclSuccess;
    for (int i = 0; i < 2000 && (state == ncclSuccess || state == ncclInProgress); ++i) {
      ASSERT_EQ(ncclCommGetAsyncError(rank.comm, &state), ncclSuccess);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(state, ncclInvalidUsage);
    const std::string why = ncclGetLastError(rank.comm);
    EXPECT_NE(why.find("do not match"), std::string::npos) << why;
    self.meet(1);
    ASSERT_EQ(ncclCommAbort(std::exchange(rank.comm, nullptr)), ncclSuccess);
    synchronize(rank.gpus, rank.stream);
    rank.destroy(first);
    rank.destroy(second);
    openAndClose(self);
  });
}

TEST(GpuLentMessageEnds, WhoeverWaitsIsToldWhoIsMissing) {
  onLendingRanks(2, [](ProcessRanks::Self& self, LendingRank& rank) {
    const std::vector<Message> messages{{0, 1, 0, 5000}};
    const Graph graph = rank.capture([&] { issue(rank, self.index(), messages); });
    if (self.index() == 1) {
      ASSERT_EQ(tuttiCommSetTimeout(rank.comm, 300), ncclSuccess);
      ASSERT_EQ(rank.gpus.driver().launchGraph(graph, rank.stream), Error::Success);
      ncclResult_t state = ncclSuccess;
      for (int i = 0; i < 2000 && (state == ncclSuccess || state == ncclInProgress); ++i) {
        ASSERT_EQ(ncclCommGetAsyncError(rank.comm, &state), ncclSuccess);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      EXPECT_EQ(state, ncclRemoteError);
      const std::string why = ncclGetLastError(rank.comm);
      EXPECT_NE(why.find("its stream waits for the end of the part of rank 0"), std::string::npos) << why;
      EXPECT_NE(why.find("Recv"), std::string::npos) << why;
    }
    self.meet(1);
    ASSERT_EQ(ncclCommAbort(std::exchange(rank.comm, nullptr)), ncclSuccess);
    synchronize(rank.gpus, rank.stream);
    rank.destroy(graph);
    openAndClose(self);
  });
}

}  // namespace
}  // namespace tutti::conformance::lent_test
