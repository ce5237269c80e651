#include <chrono>
#include <thread>

#include "check.h"
#include "fabric.h"

namespace tutti::probe {

using exec::cuda::LanePipes;
using exec::cuda::PipeEnd;
using exec::cuda::Verdict;

namespace {
constexpr uint64_t kWordsPerLine = 16;  // 128 bytes: no two flags share a line

template <class T>
T* allocate(uint64_t bytes) {
  void* p = nullptr;
  PROBE_CHECK(cudaMalloc(&p, bytes));
  PROBE_CHECK(cudaMemset(p, 0, bytes));
  return static_cast<T*>(p);
}

void enablePeers(int devices) {
  for (int a = 0; a < devices; ++a) {
    PROBE_CHECK(cudaSetDevice(a));
    for (int b = 0; b < devices; ++b) {
      if (a != b) PROBE_CHECK(cudaDeviceEnablePeerAccess(b, 0));
    }
  }
}

const char* nameOf(exec::cuda::Waiting waiting) {
  switch (waiting) {
    case exec::cuda::Waiting::ForData: return "data";
    case exec::cuda::Waiting::ForSlot: return "a free slot";
    case exec::cuda::Waiting::ForCell: return "a cell";
    case exec::cuda::Waiting::None: break;
  }
  return "nothing";
}
}  // namespace

Fabric::Fabric(int32_t ranks, int devices, uint64_t bufferBytes, Limits limits) : limits_(limits), members_(ranks) {
  enablePeers(devices);
  PROBE_CHECK(cudaHostAlloc(&verdict_, sizeof(Verdict), cudaHostAllocPortable | cudaHostAllocMapped));
  PROBE_CHECK(cudaHostAlloc(&abort_, 128, cudaHostAllocPortable | cudaHostAllocMapped));
  *verdict_ = Verdict{};
  *abort_ = 0;
  for (int32_t r = 0; r < ranks; ++r) {
    Member& m = members_[r];
    m.device = r % devices;
    PROBE_CHECK(cudaSetDevice(m.device));
    PROBE_CHECK(cudaStreamCreateWithFlags(&m.stream, cudaStreamNonBlocking));
    m.in = allocate<std::byte>(bufferBytes + 2 * kGuardBytes) + kGuardBytes;
    m.out = allocate<std::byte>(bufferBytes + 2 * kGuardBytes) + kGuardBytes;
    m.fifo = allocate<std::byte>(kFifoBytes);
    m.words = allocate<uint64_t>(kMaxChannels * kWords * kWordsPerLine * sizeof(uint64_t));
    m.pipes = allocate<LanePipes>(kMaxChannels * sizeof(LanePipes));
    m.window = allocate<std::byte>(exec::cuda::windowBytes(ranks, kMaxChannels, kCellsPerSlice));
    m.epochs = allocate<uint32_t>(kMaxChannels * sizeof(uint32_t));
    m.order = allocate<int32_t>(ranks * sizeof(int32_t));
    m.relay = allocate<exec::cuda::AbortRelay>(sizeof(exec::cuda::AbortRelay));
    PROBE_CHECK(cudaDeviceSynchronize());
  }
}

uint64_t* Fabric::word(int32_t rank, int32_t channel, Word which) const {
  return members_[rank].words + (static_cast<uint64_t>(channel) * kWords + which) * kWordsPerLine;
}

algo::LayoutView Fabric::view(int32_t rank, const int32_t* order) const {
  algo::LayoutView v;
  v.rank = Rank(rank);
  v.ranks = ranks();
  v.ring.order = order;
  v.ring.size = ranks();
  for (int32_t i = 0; i < ranks(); ++i) {
    if (order_[i] == rank) v.ring.position = i;
  }
  return v;
}

void Fabric::connectRing(const std::vector<int32_t>& order, const PipeConfig& config) {
  if (config.channels > kMaxChannels || config.channels * config.slots * config.slotBytes > kFifoBytes) {
    std::fprintf(stderr, "%d channels of %d slots of %llu bytes do not fit\n", config.channels, config.slots,
                 static_cast<unsigned long long>(config.slotBytes));
    std::_Exit(2);
  }
  order_ = order;
  config_ = config;
  hostViews_.clear();
  for (int32_t r = 0; r < ranks(); ++r) hostViews_.push_back(view(r, order_.data()));
  for (int32_t r = 0; r < ranks(); ++r) {
    const Member& m = members_[r];
    const Rank next = hostViews_[r].ring.next();
    const Rank prev = hostViews_[r].ring.prev();
    std::vector<LanePipes> lanes(config.channels);
    for (int32_t c = 0; c < config.channels; ++c) {
      const uint64_t offset = static_cast<uint64_t>(c) * config.slots * config.slotBytes;
      LanePipes& lane = lanes[c];
      lane.recvs = lane.sends = 1;
      lane.recv[0] = {prev, 0, m.fifo + offset, word(r, c, kFilled), word(prev.value, c, kFreed), word(r, c, kRecvDone)};
      lane.send[0] = {next, 0, members_[next.value].fifo + offset, word(next.value, c, kFilled), word(r, c, kFreed), word(r, c, kSendDone)};
    }
    PROBE_CHECK(cudaSetDevice(m.device));
    PROBE_CHECK(cudaMemset(m.words, 0, kMaxChannels * kWords * kWordsPerLine * sizeof(uint64_t)));
    PROBE_CHECK(cudaMemcpy(m.pipes, lanes.data(), lanes.size() * sizeof(LanePipes), cudaMemcpyHostToDevice));
    PROBE_CHECK(cudaMemcpy(m.order, order_.data(), order_.size() * sizeof(int32_t), cudaMemcpyHostToDevice));
    PROBE_CHECK(cudaDeviceSynchronize());
  }
}

exec::cuda::Call Fabric::call(int32_t rank) const {
  exec::cuda::Call call;
  call.view = view(rank, members_[rank].order);
  call.wait = {abort_, members_[rank].relay, verdict_, limits_.deviceNs};
  return call;
}

exec::cuda::PipeView Fabric::pipes(int32_t rank) const { return {members_[rank].pipes, config_.slotBytes, config_.slots}; }

exec::cuda::WindowView Fabric::window(int32_t rank) const {
  exec::cuda::WindowView w;
  for (int32_t r = 0; r < ranks(); ++r) w.base[r] = members_[r].window;
  w.epochs = members_[rank].epochs;
  w.channels = kMaxChannels;
  w.cellsPerSlice = kCellsPerSlice;
  return w;
}

bool Fabric::await(const std::vector<cudaEvent_t>& events) {
  using Clock = std::chrono::steady_clock;
  const auto limit = Clock::now() + std::chrono::milliseconds(limits_.hostMs);
  for (const cudaEvent_t event : events) {
    cudaError_t state = cudaErrorNotReady;
    while ((state = cudaEventQuery(event)) == cudaErrorNotReady && Clock::now() < limit) std::this_thread::yield();
    if (state == cudaErrorNotReady) {
      std::fprintf(stderr, "no end after %llu ms: aborting\n", static_cast<unsigned long long>(limits_.hostMs));
      *reinterpret_cast<volatile uint32_t*>(abort_) = 1;
      const auto grace = Clock::now() + std::chrono::seconds(2);
      while ((state = cudaEventQuery(event)) == cudaErrorNotReady && Clock::now() < grace) std::this_thread::yield();
      std::fprintf(stderr, state == cudaErrorNotReady ? "the abort word did not help\n" : "the abort word ended it\n");
      break;
    }
    PROBE_CHECK(state);
  }
  if (*reinterpret_cast<volatile uint32_t*>(abort_) == 0) return true;
  const volatile Verdict& v = *verdict_;
  if (v.state == Verdict::Empty) return false;
  std::fprintf(stderr, "gave up: rank %d, channel %d, waited for %s of rank %d: expected %llu, saw %llu\n", v.rank, v.channel,
               nameOf(v.waiting), v.peer, static_cast<unsigned long long>(v.expected), static_cast<unsigned long long>(v.seen));
  return false;
}

}  // namespace tutti::probe
