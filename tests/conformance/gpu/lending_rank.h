// A rank of a process of its own whose captured calls lend the peers its buffers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "conformance/gpu/faults.h"
#include "conformance/reference.h"
#include "core/format.h"
#include "exec/cuda/host_kernels.h"

namespace tutti::conformance::lent_test {

using driver::cuda::DevicePtr;
using driver::cuda::Error;
using driver::cuda::Graph;
using driver::cuda::Stream;
using exec::cuda::HostKernels;
using faults::ProcessRanks;

inline constexpr size_t kRoom = size_t{1} << 20;
inline constexpr auto kPoison = std::byte{0xa5};

/// How a user comes to memory.
enum class Memory { Plain, Exported };

/// A rank of this process: a GPU with memory for inputs and outputs, a stream and a communicator.
class LendingRank {
 public:
  LendingRank(ProcessRanks::Self& self, Memory memory) : self_(self), memory_(memory), gpus(self.count()), use_(gpus, self.index()) {
    stream = gpus.makeStream();
    in = allocate();
    out = allocate();
    EXPECT_EQ(ncclCommInitRank(&comm, self.count(), self.freshId(), self.index()), ncclSuccess) << ncclGetLastError(nullptr);
  }
  ~LendingRank() {
    if (comm != nullptr) {
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
    free(in);
    free(out);
    self_.meet(90);  // what peers may still touch is kept
    EXPECT_EQ(gpus.driver().streamDestroy(stream), Error::Success);
  }
  LendingRank(const LendingRank&) = delete;
  LendingRank& operator=(const LendingRank&) = delete;

  std::byte* allocate(size_t bytes = kRoom) {
    void* memory = nullptr;
    if (memory_ == Memory::Exported) {
      EXPECT_EQ(ncclMemAlloc(&memory, bytes), ncclSuccess);
    } else {
      DevicePtr address = 0;
      EXPECT_EQ(gpus.driver().memAlloc(&address, bytes), Error::Success);
      memory = reinterpret_cast<void*>(address);
    }
    return static_cast<std::byte*>(memory);
  }
  void free(std::byte* memory) {
    if (memory_ == Memory::Exported) {
      EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
    } else {
      EXPECT_EQ(gpus.driver().memFree(reinterpret_cast<DevicePtr>(memory)), Error::Success);
    }
  }
  std::byte* sendBuffer(const Case& c) const {
    if (c.inPlace && c.kind == Kind::AllReduce) return recvBuffer(c);
    if (c.inPlace && c.kind == Kind::Gather && self_.index() == c.root) return recvBuffer(c) + ownChunk(c);
    return in + static_cast<size_t>(c.sendOffset) * sizeOf(c.type);
  }
  std::byte* recvBuffer(const Case& c) const {
    if (c.inPlace && c.kind == Kind::Scatter && self_.index() == c.root) return sendBuffer(c) + ownChunk(c);
    return out + static_cast<size_t>(c.recvOffset) * sizeOf(c.type);
  }

  ncclResult_t call(const Case& c) const {
    const auto type = static_cast<ncclDataType_t>(c.type);
    const auto op = static_cast<ncclRedOp_t>(c.operation);
    switch (c.kind) {
      case Kind::AllReduce: return ncclAllReduce(sendBuffer(c), recvBuffer(c), c.count, type, op, comm, stream);
      case Kind::ReduceScatter: return ncclReduceScatter(sendBuffer(c), recvBuffer(c), c.count, type, op, comm, stream);
      case Kind::AllGather: return ncclAllGather(sendBuffer(c), recvBuffer(c), c.count, type, comm, stream);
      case Kind::Scatter:  // what is of no matter may be nothing
        return ncclScatter(self_.index() == c.root ? sendBuffer(c) : nullptr, recvBuffer(c), c.count, type, c.root, comm, stream);
      case Kind::Gather:
        return ncclGather(sendBuffer(c), self_.index() == c.root ? recvBuffer(c) : nullptr, c.count, type, c.root, comm, stream);
      case Kind::AlltoAll: return ncclAlltoAll(sendBuffer(c), recvBuffer(c), c.count, type, comm, stream);
      default: return ncclBroadcast(sendBuffer(c), recvBuffer(c), c.count, type, c.root, comm, stream);
    }
  }
  Graph capture(const std::function<void()>& what) {
    Graph graph = nullptr;
    EXPECT_EQ(gpus.driver().beginCapture(stream), Error::Success);
    what();
    EXPECT_EQ(gpus.driver().endCapture(stream, &graph), Error::Success);
    return graph;
  }
  Graph capture(const Case& c) {
    return capture([&] { ASSERT_EQ(call(c), ncclSuccess) << describe(c) << ": " << ncclGetLastError(comm); });
  }
  /// With other data each turn.
  void replay(Graph graph, Case c, uint64_t turn) {
    c.seed = turn + 77;
    std::vector<conformance::Contents> inputs;
    for (int r = 0; r < c.ranks; ++r) inputs.push_back(makeInput(c, r));
    std::memset(out, static_cast<int>(kPoison), kRoom);
    const auto& own = inputs[static_cast<size_t>(self_.index())];
    std::memcpy(sendBuffer(c), own.data(), own.size());
    ASSERT_EQ(gpus.driver().launchGraph(graph, stream), Error::Success);
    synchronize(gpus, stream);
    const auto expected = expectedOutput(c, inputs)[static_cast<size_t>(self_.index())];
    ASSERT_EQ(firstDifference(c, recvBuffer(c), expected), "") << describe(c) << ", turn " << turn << ", rank " << self_.index();
    if (c.inPlace && c.kind == Kind::Scatter) return;
    const std::byte* const end = recvBuffer(c) + expected.size();
    ASSERT_TRUE(std::all_of(end, end + 256, [](std::byte b) { return b == kPoison; })) << describe(c);
  }
  void destroy(Graph graph) { EXPECT_EQ(gpus.driver().destroyGraph(graph), Error::Success); }

 private:
  size_t ownChunk(const Case& c) const { return static_cast<size_t>(self_.index()) * c.count * sizeOf(c.type); }

  ProcessRanks::Self& self_;
  const Memory memory_;

 public:
  FakeGpus gpus;
  Stream stream = nullptr;
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  ncclComm_t comm = nullptr;

 private:
  const UseGpu use_;
};

/// Launches that go straight to buffers, of all kinds; and those through what the library has.
inline std::pair<size_t, size_t> launches() {
  const auto counts = HostKernels::counts();
  return {static_cast<size_t>(counts.mapped + counts.moved + counts.copyStages), static_cast<size_t>(counts.launches)};
}

/// Runs `body` on ranks of so many processes whose blocks go to buffers wherever they can.
inline void onRanks(int ranks, Memory memory, const std::function<void(ProcessRanks::Self&, LendingRank&)>& body,
                    const char* mapped = "1") {
  const ScopedSetting wish("TUTTI_MAPPED", mapped);
  ProcessRanks children(ranks, [&](ProcessRanks::Self& self) {
    LendingRank rank(self, memory);
    body(self, rank);
  });
  children.expectAllWell({}, 60);
}

}  // namespace tutti::conformance::lent_test
