#include "exec/host/launch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "planned_ranks.h"

namespace tutti::exec::host::launch_test {
namespace {

std::mutex launchOrder;

using Streams = std::vector<std::shared_ptr<Stream>>;

Streams makeStreams(int count) {
  Streams streams;
  for (int i = 0; i < count; ++i) {
    streams.push_back(std::make_shared<Stream>());
    EXPECT_TRUE(streams.back()->start().ok());
  }
  return streams;
}

/// A communicator whose works are launched; tickets count up for each rank.
struct Comm {
  explicit Comm(int32_t ranks, const plan::Settings& settings = {}) : planned(ranks, settings), tickets(static_cast<size_t>(ranks)) {
    for (int32_t r = 0; r < ranks; ++r) turns.push_back(planned.makeTurn(r));
  }
  std::unique_ptr<Work> work(int32_t rank, const plan::Shape& shape, const void* in, void* out) {
    auto work = std::make_unique<Work>(turns[static_cast<size_t>(rank)]);
    work->reset(tickets[static_cast<size_t>(rank)]++);
    work->beginChain();
    work->add(planned.call(rank, shape, in, out));
    return work;
  }
  std::shared_ptr<Launch> launch(int32_t rank, const plan::Shape& shape, const void* in, void* out) {
    std::vector<std::unique_ptr<Work>> works;
    works.push_back(work(rank, shape, in, out));
    return std::make_shared<Launch>(std::move(works), 5);
  }
  /// Copies `in` to `out`, as an all-reduce of one rank does.
  std::shared_ptr<Launch> copy(const std::vector<int32_t>& in, std::vector<int32_t>& out) {
    return launch(0, shapeOf(Collective::AllReduce, DataType::I32, in.size()), in.data(), out.data());
  }

  PlannedRanks planned;
  std::vector<std::shared_ptr<Turn>> turns;
  std::vector<uint64_t> tickets;
};

bool saysAborted(const Status& status) { return status.code() == Code::RemoteError && status.text().rfind("aborted", 0) == 0; }

/// Keeps a stream busy until it is opened.
class Blocker {
 public:
  explicit Blocker(Stream& stream) {
    stream.push([this] { gate_.get_future().wait(); });
  }
  void open() { gate_.set_value(); }

 private:
  std::promise<void> gate_;
};

TEST(Launch, WithoutStreamsRunsOnTheCaller) {
  Comm comm(1);
  const auto in = numbers(0, 10);
  std::vector<int32_t> out(10);
  EXPECT_TRUE(comm.copy(in, out)->submit({}, false, launchOrder).ok());
  EXPECT_EQ(out, in);
}

TEST(Launch, OnAStreamRunsBehindWhatIsThere) {
  Comm comm(1);
  Streams streams = makeStreams(1);
  const auto in = numbers(0, 10);
  std::vector<int32_t> out(10, -1);
  Blocker blocker(*streams[0]);
  EXPECT_TRUE(comm.copy(in, out)->submit(streams, false, launchOrder).ok());
  EXPECT_EQ(out, std::vector<int32_t>(10, -1)) << "submit does not wait";
  blocker.open();
  streams[0]->synchronize();
  EXPECT_EQ(out, in);
}

TEST(Launch, WorkOfOneCommunicatorKeepsItsOrderAcrossStreams) {
  Comm comm(1);
  Streams streams = makeStreams(2);
  const auto a = numbers(0, 10);
  std::vector<int32_t> b(10, -1);
  std::vector<int32_t> c(10, -1);
  Blocker blocker(*streams[0]);
  ASSERT_TRUE(comm.copy(a, b)->submit({streams[0]}, false, launchOrder).ok());
  ASSERT_TRUE(comm.copy(b, c)->submit({streams[1]}, false, launchOrder).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(streams[1]->idle()) << "the second waits for the first, though its own stream is free";
  blocker.open();
  streams[1]->synchronize();
  EXPECT_EQ(c, a);
}

TEST(Launch, OnTwoStreamsIsOnePieceOfWorkOnBoth) {
  Comm comm(1);
  Streams streams = makeStreams(2);
  const auto in = numbers(0, 10);
  std::vector<int32_t> out(10, -1);
  std::vector<int32_t> seen[2];
  Blocker first(*streams[0]);
  Blocker second(*streams[1]);
  ASSERT_TRUE(comm.copy(in, out)->submit(streams, false, launchOrder).ok());
  for (size_t s = 0; s < 2; ++s) streams[s]->push([&seen, &out, s] { seen[s] = out; });
  first.open();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(out, std::vector<int32_t>(10, -1)) << "not before the second stream has reached it";
  EXPECT_FALSE(streams[0]->idle());
  second.open();
  for (const auto& s : streams) s->synchronize();
  EXPECT_EQ(seen[0], in);
  EXPECT_EQ(seen[1], in);
}

TEST(Launch, TheCallerRunsItWhenANullStreamTakesPart) {
  Comm comm(1);
  Streams streams = makeStreams(2);
  const auto in = numbers(0, 10);
  std::vector<int32_t> out(10, -1);
  std::atomic<bool> opened{false};
  Blocker blocker(*streams[1]);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    opened.store(true);
    blocker.open();
  });
  ASSERT_TRUE(comm.copy(in, out)->submit(streams, true, launchOrder).ok());
  EXPECT_TRUE(opened.load()) << "it waits for every stream";
  EXPECT_EQ(out, in) << "complete on return";
  opener.join();
  for (const auto& s : streams) s->synchronize();
}

TEST(Launch, AnErrorIsKeptOnEveryStream) {
  Comm comm(1);
  Streams streams = makeStreams(3);
  std::vector<int32_t> data(4);
  comm.planned.hub().failAll(error(Code::RemoteError, "aborted"));
  EXPECT_TRUE(comm.copy(data, data)->submit({streams[0], streams[1]}, false, launchOrder).ok()) << "it runs later";
  for (const auto& s : streams) s->synchronize();
  EXPECT_TRUE(saysAborted(streams[0]->takeError()));
  EXPECT_TRUE(saysAborted(streams[1]->takeError()));
  EXPECT_TRUE(streams[2]->takeError().ok());

  const Status status = comm.copy(data, data)->submit({streams[2]}, true, launchOrder);
  EXPECT_EQ(status.code(), Code::RemoteError) << "run by the caller: returned, too; or cancelled, if the stream took its time";
  EXPECT_EQ(streams[2]->takeError().text(), status.text());
}

TEST(Launch, AnErrorIsKeptOnStreamsThatHadNotReachedIt) {
  Comm comm(1);
  Streams streams = makeStreams(1);
  std::vector<int32_t> data(4);
  Blocker blocker(*streams[0]);
  comm.planned.hub().failAll(error(Code::RemoteError, "aborted"));
  const Status status = comm.copy(data, data)->submit({streams[0]}, true, launchOrder);
  EXPECT_EQ(status.code(), Code::RemoteError) << status.text();
  EXPECT_EQ(streams[0]->takeError().text(), status.text());
  blocker.open();
  for (const auto& s : streams) s->synchronize();
}

TEST(Launch, ReleasesStreamsAndItselfWhenItHasRun) {
  Comm comm(1);
  Streams streams = makeStreams(2);
  std::vector<int32_t> data(4);
  std::weak_ptr<Launch> watch;
  {
    auto launch = comm.copy(data, data);
    watch = launch;
    ASSERT_TRUE(launch->submit(streams, false, launchOrder).ok());
  }
  for (const auto& s : streams) s->stop();
  EXPECT_TRUE(watch.expired());
  for (const auto& s : streams) EXPECT_EQ(s.use_count(), 1);
}

TEST(Launch, StopRunsWhatWasLaunched) {
  Comm comm(1);
  Streams streams = makeStreams(2);
  const auto in = numbers(0, 10);
  std::vector<int32_t> a(10, -1);
  std::vector<int32_t> b(10, -1);
  Blocker blocker(*streams[0]);
  ASSERT_TRUE(comm.copy(in, a)->submit(streams, false, launchOrder).ok());
  ASSERT_TRUE(comm.copy(a, b)->submit({streams[1]}, false, launchOrder).ok());
  std::thread stopper([&] { streams[1]->stop(); });
  blocker.open();
  stopper.join();
  streams[0]->stop();
  EXPECT_EQ(b, in);
}

/// Two threads submit on the same two streams, named in opposite orders: neither launch may wait for the other for ever.
TEST(Launch, LaunchesThatShareStreamsDoNotLockEachOtherOut) {
  Comm comms[2] = {Comm(1), Comm(1)};
  Streams streams = makeStreams(2);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      const auto in = numbers(static_cast<int32_t>(t), 8);
      std::vector<int32_t> out(8);
      Streams mine = t == 0 ? streams : Streams{streams[1], streams[0]};
      for (int i = 0; i < 200; ++i) ASSERT_TRUE(comms[t].copy(in, out)->submit(mine, i % 5 == 4, launchOrder).ok());
      for (const auto& s : mine) s->synchronize();
      EXPECT_EQ(out, in);
    });
  }
  for (auto& t : threads) t.join();
}

/// Ranks as threads, each issuing collectives on two streams of its own by turns.
TEST(Launch, RanksMeetOnTheirStreams) {
  constexpr int32_t kRanks = 3;
  constexpr size_t kCalls = 40;
  Comm comm(kRanks, settingsOf(2, 256));
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < kRanks; ++r) {
    threads.emplace_back([&comm, r] {
      Streams streams = makeStreams(2);
      std::vector<std::vector<int32_t>> buffers(kCalls, numbers(r, 300));
      for (size_t i = 0; i < kCalls; ++i) {
        const plan::Shape shape = shapeOf(Collective::AllReduce, DataType::I32, 300);
        ASSERT_TRUE(comm.launch(r, shape, buffers[i].data(), buffers[i].data())->submit({streams[i % 2]}, false, launchOrder).ok());
      }
      for (const auto& s : streams) s->synchronize();
      for (const auto& buffer : buffers) EXPECT_EQ(buffer, sumOfNumbers(kRanks, 300));
    });
  }
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace tutti::exec::host::launch_test
