#include "conformance/run_case.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "core/format.h"

namespace tutti::conformance {
namespace {

/// Whether the collective reads, and writes, the buffers of this rank.
bool usesSend(const Case& c, int rank) {
  const bool rootOnly = c.kind == Kind::Broadcast || c.kind == Kind::Scatter;
  return !rootOnly || rank == c.root;
}
bool usesRecv(const Case& c, int rank) {
  const bool rootOnly = c.kind == Kind::Reduce || c.kind == Kind::Gather;
  return !rootOnly || rank == c.root;
}

/// In place: where the smaller buffer lies in the larger one, in elements.
uint64_t inPlaceOffset(const Case& c, int rank) {
  switch (c.kind) {
    case Kind::AllGather:
    case Kind::ReduceScatter: return static_cast<uint64_t>(rank) * c.count;
    case Kind::Gather:
    case Kind::Scatter: return static_cast<uint64_t>(c.root) * c.count;
    default: return 0;
  }
}

/// Created for the case when it needs a scalar of its own; destroyed right after the call, as the contract allows.
class Operator {
 public:
  Operator(const Case& c, int rank, ncclComm_t comm, bool fromMemAlloc) : comm_(comm), scalar_(scalarOf(c, rank)) {
    value_ = static_cast<ncclRedOp_t>(c.operation <= kAvg ? c.operation : 0);
    if (!reduces(c.kind) || c.operation <= kAvg) return;
    const auto residence = c.operation == kPreMulHost ? ncclScalarHostImmediate : ncclScalarDevice;
    created_ = true;
    void* scalar = &scalar_;
    if (fromMemAlloc && c.operation == kPreMulDevice) {
      EXPECT_EQ(ncclMemAlloc(&onDevice_, sizeof scalar_), ncclSuccess) << ncclGetLastError(nullptr);
      if (onDevice_ != nullptr) std::memcpy(onDevice_, &scalar_, sizeof scalar_);
      scalar = onDevice_;
    }
    EXPECT_EQ(ncclRedOpCreatePreMulSum(&value_, scalar, static_cast<ncclDataType_t>(c.type), residence, comm), ncclSuccess)
        << ncclGetLastError(comm);
    if (c.operation == kPreMulHost) scalar_ = ~scalar_;
  }
  ~Operator() {
    if (created_) {
      EXPECT_EQ(ncclRedOpDestroy(value_, comm_), ncclSuccess) << ncclGetLastError(comm_);
    }
    EXPECT_EQ(ncclMemFree(onDevice_), ncclSuccess);
  }
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  ncclRedOp_t value() const { return value_; }

 private:
  ncclComm_t comm_;
  uint64_t scalar_;
  void* onDevice_ = nullptr;
  ncclRedOp_t value_;
  bool created_ = false;
};

ncclResult_t exchange(const Case& c, int rank, const void* send, void* recv, ncclDataType_t type, ncclComm_t comm) {
  if (const ncclResult_t result = ncclGroupStart(); result != ncclSuccess) return result;
  (void)ncclSend(send, c.count, type, (rank + 1) % c.ranks, comm, nullptr);
  (void)ncclRecv(recv, c.count, type, (rank + c.ranks - 1) % c.ranks, comm, nullptr);
  return ncclGroupEnd();
}

ncclResult_t call(const Case& c, int rank, const void* send, void* recv, ncclRedOp_t op, ncclComm_t comm) {
  const auto type = static_cast<ncclDataType_t>(c.type);
  switch (c.kind) {
    case Kind::AllReduce: return ncclAllReduce(send, recv, c.count, type, op, comm, nullptr);
    case Kind::Reduce: return ncclReduce(send, recv, c.count, type, op, c.root, comm, nullptr);
    case Kind::Broadcast: return ncclBroadcast(send, recv, c.count, type, c.root, comm, nullptr);
    case Kind::Bcast: return ncclBcast(recv, c.count, type, c.root, comm, nullptr);
    case Kind::ReduceScatter: return ncclReduceScatter(send, recv, c.count, type, op, comm, nullptr);
    case Kind::AllGather: return ncclAllGather(send, recv, c.count, type, comm, nullptr);
    case Kind::AlltoAll: return ncclAlltoAll(send, recv, c.count, type, comm, nullptr);
    case Kind::Gather: return ncclGather(send, recv, c.count, type, c.root, comm, nullptr);
    case Kind::Scatter: return ncclScatter(send, recv, c.count, type, c.root, comm, nullptr);
    case Kind::Exchange: break;
  }
  return exchange(c, rank, send, recv, type, comm);
}

/// Of the call's plan; 1 where the channels make no difference.
int32_t channelsOf(const Case& c, ncclComm_t comm) {
  if (!reduces(c.kind) || c.count == 0 || layoutOf()(c.ranks).tracks() == 1) return 1;
  return explainChannels(comm, explainName(c.kind), c.count, static_cast<ncclDataType_t>(c.type), c.root);
}

bool isPoisoned(const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (data[i] != std::byte{GuardedBuffer::kPoison}) return false;
  return true;
}

}  // namespace

void CaseRunner::prepare(const Case& c, int rank, const Contents& input, Buffers& buffers) {
  const size_t size = sizeOf(c.type);
  const size_t sendBytes = sendElems(c) * size;
  const size_t recvBytes = recvElems(c) * size;
  buffers.send.resize(sendBytes, static_cast<size_t>(c.sendOffset) * size);
  buffers.recv.resize(c.inPlace ? std::max(sendBytes, recvBytes) : recvBytes, static_cast<size_t>(c.recvOffset) * size);
  buffers.sendPointer = buffers.send.data();
  buffers.recvPointer = buffers.recv.data();
  buffers.output = buffers.recv.data();
  // In place on a rank that uses one buffer only is the plain call: there is nothing to share.
  const bool shares = c.inPlace && (c.kind == Kind::Bcast || (usesSend(c, rank) && usesRecv(c, rank)));
  if (shares) {
    const size_t offset = inPlaceOffset(c, rank) * size;
    std::byte* base = buffers.recv.data();
    buffers.sendPointer = sendBytes < recvBytes ? base + offset : base;
    buffers.output = sendBytes > recvBytes ? base + offset : base;
    buffers.recvPointer = buffers.output;
  }
  if (!input.empty() && (c.kind != Kind::Bcast || rank == c.root)) std::memcpy(buffers.sendPointer, input.data(), input.size());
  if (c.nullUnused && !usesSend(c, rank)) buffers.sendPointer = nullptr;
  if (c.nullUnused && !usesRecv(c, rank)) buffers.recvPointer = nullptr;
}

std::string CaseRunner::verify(const Case& c, int rank, const std::vector<Contents>& inputs, const Contents& expected,
                               const Buffers& buffers) {
  if (!buffers.send.guardsIntact() || !buffers.recv.guardsIntact()) return "memory beside a buffer was written";
  const Contents& input = inputs[static_cast<size_t>(rank)];
  const bool shares = c.inPlace && buffers.sendPointer != buffers.send.data();
  if (!shares && !input.empty() && std::memcmp(buffers.send.data(), input.data(), input.size()) != 0 && c.kind != Kind::Bcast)
    return "the input was changed";
  if (!usesRecv(c, rank)) {
    if (!isPoisoned(buffers.recv.data(), buffers.recv.size())) return "an output that is not used was written";
    return {};
  }
  if (std::string difference = firstDifference(c, buffers.output, expected); !difference.empty()) return difference;
  if (reduces(c.kind) && c.data == Data::Ordinary)
    return checkPrecise(c, inputs, rank, Contents(buffers.output, buffers.output + expected.size()));
  return {};
}

void CaseRunner::runCase(const Case& c, int rank, ncclComm_t comm) {
  if (rank == 0) threads_.announce(describe(c));
  Buffers buffers;
  std::vector<Contents>& inputs = inputs_[rounds_[static_cast<size_t>(rank)]++ % 2];
  inputs[static_cast<size_t>(rank)] = makeInput(c, rank);
  prepare(c, rank, inputs[static_cast<size_t>(rank)], buffers);
  threads_.meet();
  if (rank == 0) expected_ = expectedOutput(c, inputs, channelsOf(c, comm));
  if (jitterUs_ > 0) {
    Random random(mix(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()), static_cast<uint64_t>(rank)));
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(static_cast<uint64_t>(jitterUs_))));
  }
  ncclResult_t result = ncclSuccess;
  std::string algorithm;
  {
    const Operator op(c, rank, comm, false);
    if (rank == c.root)
      algorithm = explainAlgorithm(comm, explainName(c.kind), c.count, static_cast<ncclDataType_t>(c.type), op.value(), c.root);
    result = call(c, rank, buffers.sendPointer, buffers.recvPointer, op.value(), comm);
  }
  threads_.meet();
  if (result != ncclSuccess) {
    report(c, rank, format("returned {}: {}", static_cast<int>(result), ncclGetLastError(comm)));
    return;
  }
  if (rank == c.root && algorithm != c.algorithm) report(c, rank, format("would run {}", algorithm));
  const std::string problem = verify(c, rank, inputs, expected_[static_cast<size_t>(rank)], buffers);
  if (!problem.empty()) report(c, rank, problem);
  if (rank == 0 && usesRecv(c, 0)) hash_ = hashBytes(buffers.output, expected_[0].size(), hash_);
}

void CaseRunner::report(const Case& c, int rank, const std::string& problem) {
  constexpr int kReported = 20;
  if (failures_.fetch_add(1) < kReported) ADD_FAILURE() << "rank " << rank << ": " << problem << "\n  in: " << describe(c);
}

namespace {

/// A copy of a guarded buffer, guards and all, in memory of ncclMemAlloc; the contents go back at the end.
class MovedOut {
 public:
  explicit MovedOut(GuardedBuffer& buffer) : buffer_(buffer), bytes_(buffer.size() + 2 * GuardedBuffer::kGuard) {
    EXPECT_EQ(ncclMemAlloc(&memory_, bytes_), ncclSuccess) << ncclGetLastError(nullptr);
    if (memory_ != nullptr) std::memcpy(memory_, begin(), bytes_);
  }
  ~MovedOut() {
    if (memory_ != nullptr) std::memcpy(begin(), memory_, bytes_);
    EXPECT_EQ(ncclMemFree(memory_), ncclSuccess);
  }
  MovedOut(const MovedOut&) = delete;
  MovedOut& operator=(const MovedOut&) = delete;
  /// Where a place of the buffer is now; other places stay as they are.
  void* of(void* place) const {
    const bool holds = place != nullptr && place >= begin() && place < begin() + bytes_;
    return holds ? static_cast<std::byte*>(memory_) + (static_cast<std::byte*>(place) - begin()) : place;
  }

 private:
  std::byte* begin() const { return buffer_.data() - GuardedBuffer::kGuard; }

  GuardedBuffer& buffer_;
  const size_t bytes_;
  void* memory_ = nullptr;
};

}  // namespace

std::string runCaseAlone(const Case& c, int rank, ncclComm_t comm, bool fromMemAlloc, const std::function<void()>& settle) {
  std::vector<Contents> inputs;
  for (int r = 0; r < c.ranks; ++r) inputs.push_back(makeInput(c, r));
  CaseRunner::Buffers buffers;
  CaseRunner::prepare(c, rank, inputs[static_cast<size_t>(rank)], buffers);
  ncclResult_t result = ncclSuccess;
  {
    const Operator op(c, rank, comm, fromMemAlloc);
    if (fromMemAlloc) {
      const MovedOut send(buffers.send), recv(buffers.recv);
      const auto moved = [&](void* place) { return recv.of(send.of(place)); };  // in place, both are in one
      result = call(c, rank, moved(buffers.sendPointer), moved(buffers.recvPointer), op.value(), comm);
      if (settle != nullptr) settle();
    } else {
      result = call(c, rank, buffers.sendPointer, buffers.recvPointer, op.value(), comm);
      if (settle != nullptr) settle();
    }
  }
  if (result != ncclSuccess) return format("returned {}: {}", static_cast<int>(result), ncclGetLastError(comm));
  return CaseRunner::verify(c, rank, inputs, expectedOutput(c, inputs, channelsOf(c, comm))[static_cast<size_t>(rank)], buffers);
}

}  // namespace tutti::conformance
