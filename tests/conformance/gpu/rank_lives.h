// Ranks of this process that come and go on threads of their own, and whether they have left anything.
//
// Owner: the test. Bodies run on a thread for each rank; everything else is for the thread of the test.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "comm/process.h"
#include "conformance/gpu/faults.h"
#include "core/format.h"

namespace tutti::conformance {

/// How a communicator ends.
enum class End { Destroy, Finalize, Abort };

constexpr const char* nameOf(End end) { return end == End::Destroy ? "Destroy" : end == End::Finalize ? "Finalize" : "Abort"; }

inline ncclResult_t endBy(End end, ncclComm_t comm) {
  if (end == End::Abort) return ncclCommAbort(comm);
  const ncclResult_t finalized = end == End::Finalize ? ncclCommFinalize(comm) : ncclSuccess;
  return finalized == ncclSuccess ? ncclCommDestroy(comm) : finalized;
}

/// What was alive on all GPUs at a moment, and how much memory of each was used, but for what the library keeps for its next use.
struct Level {
  driver::cuda::FakeCounts alive;
  std::vector<Bytes> used;

  static Level of(FakeGpus& gpus, int devices) {
    Level now;
    for (int d = 0; d < devices; ++d) {
      comm::Device* const device = comm::process().devices.find(d);
      if (device != nullptr) device->pool.trim();
      now.used.push_back(gpus.driver().used(d));
    }
    now.alive = gpus.driver().alive();
    return now;
  }
  friend bool operator==(const Level&, const Level&) = default;
};

inline void PrintTo(const Level& level, std::ostream* to) {
  const driver::cuda::FakeCounts& c = level.alive;
  *to << format("{} handles, {} mappings, {} registered, {} events, {} graphs, {} marks; bytes", c.handles, c.mappings, c.registered,
                c.events, c.graphs, c.userObjects);
  for (const Bytes bytes : level.used) *to << ' ' << bytes.value;
}

/// Ranks with a GPU, a stream and memory each.
class RankLives {
 public:
  RankLives(FakeGpus& gpus, int ranks, size_t count) : gpus_(gpus), ranks_(ranks), barrier_(ranks) {
    for (int r = 0; r < ranks; ++r) {
      const UseGpu use(gpus, r);
      streams_.push_back(gpus.makeStream());
      data_.push_back(std::make_unique<GpuInts>(count));
    }
  }
  ~RankLives() {
    for (const driver::cuda::Stream stream : streams_) EXPECT_EQ(gpus_.driver().streamDestroy(stream), driver::cuda::Error::Success);
  }
  RankLives(const RankLives&) = delete;
  RankLives& operator=(const RankLives&) = delete;

  int ranks() const { return ranks_; }
  driver::cuda::Stream stream(int rank) const { return streams_[static_cast<size_t>(rank)]; }
  const GpuInts& data(int rank) const { return *data_[static_cast<size_t>(rank)]; }

  /// On all ranks' threads at once, each with its GPU; a hang ends the process and says where it was.
  void run(const std::string& what, const std::function<void(int rank)>& body) {
    runWithin(20 * faults::kSlow, what, [&] {
      std::vector<std::thread> threads;
      for (int r = 0; r < ranks_; ++r)
        threads.emplace_back([&, r] {
          const UseGpu use(gpus_, r);
          body(r);
        });
      for (std::thread& thread : threads) thread.join();
    });
  }
  /// From within a body, by every rank.
  void meet() { barrier_.arrive_and_wait(); }

  ncclResult_t sumAll(int rank, ncclComm_t comm) { return sum(data(rank), data(rank).count(), comm, stream(rank)); }
  void await(int rank) { synchronize(gpus_, stream(rank)); }
  void replay(driver::cuda::Graph graph, int rank) {
    EXPECT_EQ(gpus_.driver().launchGraph(graph, stream(rank)), driver::cuda::Error::Success);
  }
  void destroy(driver::cuda::Graph graph) { EXPECT_EQ(gpus_.driver().destroyGraph(graph), driver::cuda::Error::Success); }
  /// What this rank's thread does with its stream, as a graph.
  driver::cuda::Graph capture(int rank, const std::function<void()>& what) {
    driver::cuda::Graph graph = nullptr;
    EXPECT_EQ(gpus_.driver().beginCapture(stream(rank), driver::cuda::CaptureMode::ThreadLocal), driver::cuda::Error::Success);
    what();
    EXPECT_EQ(gpus_.driver().endCapture(stream(rank), &graph), driver::cuda::Error::Success);
    return graph;
  }
  void fill(int rank, int value) {
    for (size_t i = 0; i < data(rank).count(); ++i) data(rank).data()[i] = value;
  }
  void expectAll(int rank, int value, const std::string& when) {
    for (size_t i = 0; i < data(rank).count(); i += 97)
      ASSERT_EQ(data(rank).data()[i], value) << when << ", rank " << rank << ", element " << i;
  }

  /// The same for all ranks' threads: begun by whoever has the id.
  static ncclUniqueId newId() {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
    return id;
  }
  ncclComm_t join(const ncclUniqueId& id, int rank) const {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, ranks_, id, rank), ncclSuccess) << ncclGetLastError(nullptr);
    return comm;
  }
  /// One that does nothing: what others have left is given back by that.
  void liveOnce() {
    const ncclUniqueId id = newId();
    run("a life", [&](int rank) {
      const ncclComm_t comm = join(id, rank);
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
    });
  }
  Level level() { return Level::of(gpus_, ranks_); }

 private:
  FakeGpus& gpus_;
  const int ranks_;
  std::barrier<> barrier_;
  std::vector<driver::cuda::Stream> streams_;
  std::vector<std::unique_ptr<GpuInts>> data_;
};

}  // namespace tutti::conformance
