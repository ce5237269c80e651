#include "fabric.h"

#include <chrono>
#include <thread>

#include "check.h"

namespace tutti::probe {

using exec::cuda::PipeEnd;
using exec::cuda::Verdict;

namespace {

constexpr uint64_t kLine = 128;  // no two flags share a line
constexpr int kPattern = 0x55;   // unused memory holds no flag that is near the counters

template <class T>
T* allocate(uint64_t count, int pattern = 0) {
  void* p = nullptr;
  PROBE_CHECK(cudaMalloc(&p, count * sizeof(T)));
  PROBE_CHECK(cudaMemset(p, pattern, count * sizeof(T)));
  return static_cast<T*>(p);
}

void fillWords(uint64_t* words, uint64_t count, uint64_t value) {
  const std::vector<uint64_t> host(count, value);
  PROBE_CHECK(cudaMemcpy(words, host.data(), count * sizeof(uint64_t), cudaMemcpyHostToDevice));
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
  using exec::cuda::Waiting;
  switch (waiting) {
    case Waiting::None: return "a pipe that is not open";
    case Waiting::ForData: return "data";
    case Waiting::ForSlot: return "a free slot";
    case Waiting::ForCell: return "a cell";
    case Waiting::ForArrival: return "an arrival";
    case Waiting::ForHandOver: return "a hand-over";
    case Waiting::Mismatch: return "the same call";
    case Waiting::ForLeave:
    case Waiting::ForCopies:
    case Waiting::OtherPlace: break;  // of copies, which the probe does not launch
  }
  return "nothing";
}

}  // namespace

Fabric::Fabric(const FabricConfig& config)
    : config_(config), layout_(connect::Layout::natural(config.ranks, config.nodeRanks)), members_(static_cast<size_t>(config.ranks)) {
  enablePeers(config.devices);
  void* host = nullptr;
  PROBE_CHECK(cudaHostAlloc(&host, sizeof(Verdict), cudaHostAllocPortable | cudaHostAllocMapped));
  verdict_ = new (host) Verdict{};
  PROBE_CHECK(cudaHostAlloc(&host, kLine, cudaHostAllocPortable | cudaHostAllocMapped));
  abort_ = new (host) uint32_t{0};
  PROBE_CHECK(cudaHostAlloc(&host, sizeof(exec::cuda::WaitDesk), cudaHostAllocPortable | cudaHostAllocMapped));
  desk_ = new (host) exec::cuda::WaitDesk{};
  desk_->limitNs = config.timeoutNs;
  desk_->silence = static_cast<uint32_t>(config.timeoutNs / 2 >> exec::cuda::kTickShift);
  const auto channels = static_cast<uint64_t>(config.channels);
  const uint64_t window = exec::cuda::windowBytes(config.ranks, config.channels, config.shareBytes);
  for (int32_t r = 0; r < config.ranks; ++r) {
    Member& m = members_[static_cast<size_t>(r)];
    m.device = r % config.devices;
    PROBE_CHECK(cudaSetDevice(m.device));
    PROBE_CHECK(cudaStreamCreateWithFlags(&m.stream, cudaStreamNonBlocking));
    m.in = allocate<std::byte>(config.bufferBytes + 2 * kGuardBytes) + kGuardBytes;
    m.out = allocate<std::byte>(config.bufferBytes + 2 * kGuardBytes) + kGuardBytes;
    m.factor = allocate<std::byte>(kLine);
    m.works = allocate<exec::cuda::Work>(64);
    for (int p = 0; p < kProtocols; ++p) {
      m.ends[p] = allocate<PipeEnd>(channels * exec::cuda::kMostEnds);
      const std::vector<PipeEnd> none(channels * exec::cuda::kMostEnds);
      PROBE_CHECK(cudaMemcpy(m.ends[p], none.data(), none.size() * sizeof(PipeEnd), cudaMemcpyHostToDevice));
    }
    m.handOver = allocate<exec::cuda::HandOver>(channels * exec::cuda::kHandOverLanes);
    fillWords(reinterpret_cast<uint64_t*>(m.handOver), channels * exec::cuda::kHandOverLanes * sizeof(exec::cuda::HandOver) / 8,
              config.startCount);
    m.arrivals = allocate<uint64_t>(exec::cuda::arrivalBytes(config.channels) / sizeof(uint64_t));
    fillWords(m.arrivals, exec::cuda::arrivalBytes(config.channels) / sizeof(uint64_t), config.startCount);
    for (int w = 0; w < exec::cuda::kNumWindows; ++w) {
      m.windows[w] = allocate<std::byte>(window, kPattern);
      m.epochs[w] = allocate<uint64_t>(channels);
      fillWords(m.epochs[w], channels, config.startCount);
    }
    m.relay = allocate<exec::cuda::AbortRelay>(1);
    m.board = allocate<exec::cuda::BoardEntry>(exec::cuda::kBoardPeers);
    m.arena = allocate<std::byte>(config.arenaBytes, kPattern);
    PROBE_CHECK(cudaDeviceSynchronize());
  }
}

std::byte* Fabric::take(int32_t rank, uint64_t bytes) {
  Member& m = members_[static_cast<size_t>(rank)];
  const uint64_t at = m.arenaUsed;
  m.arenaUsed += (bytes + kLine - 1) / kLine * kLine;
  if (m.arenaUsed > config_.arenaBytes) {
    std::fprintf(stderr, "the pipes do not fit into %llu bytes\n", static_cast<unsigned long long>(config_.arenaBytes));
    std::_Exit(2);
  }
  return m.arena + at;
}

void Fabric::addEnd(int32_t rank, int protocol, int32_t channel, const PipeEnd& end) {
  int& used = used_[{rank, protocol, channel}];
  if (used == exec::cuda::kMostEnds) {
    std::fprintf(stderr, "rank %d, channel %d: more than %d ends\n", rank, channel, used);
    std::_Exit(2);
  }
  const Member& m = member(rank);
  PROBE_CHECK(cudaSetDevice(m.device));
  PROBE_CHECK(cudaMemcpy(m.ends[protocol] + channel * exec::cuda::kMostEnds + used, &end, sizeof end, cudaMemcpyHostToDevice));
  ++used;
}

void Fabric::open(const PipeKey& key) {
  const auto& [protocol, channel, from, to, port] = key;
  if (!pipes_.emplace(key, true).second) return;
  std::byte* const slots = take(to, static_cast<uint64_t>(config_.slots) * config_.slotBytes);
  auto* const filled = reinterpret_cast<uint64_t*>(take(to, sizeof(uint64_t)));
  auto* const freed = reinterpret_cast<uint64_t*>(take(from, sizeof(uint64_t)));
  fillWords(filled, 1, config_.startCount);
  fillWords(freed, 1, config_.startCount);
  PipeEnd end;
  end.port = static_cast<uint8_t>(port);
  end.slots = slots;
  end.done = config_.startCount;
  end.peer = to;
  end.sends = true;
  end.wait = freed;
  end.tell = filled;
  addEnd(from, protocol, channel, end);
  end.peer = from;
  end.sends = false;
  end.wait = filled;
  end.tell = freed;
  addEnd(to, protocol, channel, end);
}

void Fabric::connect(const exec::record::Algorithm& algorithm, Rank root, KernelId kernel, int32_t channels) {
  if (algorithm.traits.needs != algo::Needs::Pipe) return;
  const int protocol = static_cast<int>(exec::cuda::kernelInfo(kernel).protocol);
  for (int32_t r = 0; r < ranks(); ++r) {
    // A message goes to the next rank.
    const Rank other = algorithm.traits.collective == Collective::SendRecv ? Rank((r + 1) % ranks()) : root;
    const exec::record::Program program = algorithm.record(layout_.view(Rank(r), other));
    for (const auto& lane : program.lanes) {
      for (const algo::Step& step : lane) {
        if (step.kind != algo::Kind::Pipe) continue;
        for (int32_t i = 0; i < step.to.count; ++i)
          for (int32_t c = 0; c < channels; ++c) open({protocol, c, r, step.to.at(i).value, step.port});
      }
    }
  }
}

exec::cuda::ProgramView Fabric::program(int32_t rank, int algorithm, Rank root, KernelId kernel) {
  exec::cuda::ProgramView& view = programs_[{rank, algorithm, root.value, exec::cuda::hasFlaggedWindows(kernel)}];
  if (view.words != nullptr) return view;
  const exec::record::Algorithm& what = exec::record::algorithms()[static_cast<size_t>(algorithm)];
  const auto packed = exec::cuda::packProgram(kernel, what.traits.needs, what.record(layout_.view(Rank(rank), root)).lanes, Rank(rank));
  if (!packed) PROBE_CHECK(packed.error());
  PROBE_CHECK(cudaSetDevice(member(rank).device));
  uint64_t* const words = allocate<uint64_t>(packed->words.size());
  PROBE_CHECK(cudaMemcpy(words, packed->words.data(), packed->words.size() * sizeof(uint64_t), cudaMemcpyHostToDevice));
  PROBE_CHECK(cudaDeviceSynchronize());  // the copy may still be under way, and streams do not wait for it
  return view = {words, packed->shape};
}

exec::cuda::CommView Fabric::view(int32_t rank, KernelId kernel, uint64_t launch) const {
  const Member& m = member(rank);
  const Protocol protocol = exec::cuda::kernelInfo(kernel).protocol;
  exec::cuda::CommView v;
  v.rank = rank;
  v.ranks = ranks();
  v.pipes = {m.ends[static_cast<int>(protocol)], m.handOver, config_.slotBytes, config_.slots};
  const int which = exec::cuda::windowOf(protocol);
  for (int32_t r = 0; r < ranks(); ++r) {
    v.window.base[r] = member(r).windows[which];
    v.window.arrivals[r] = member(r).arrivals;
    if (r != rank) v.wait.post[r] = member(r).board + rank;
  }
  v.window.epochs = m.epochs[which];
  v.window.shareBytes = config_.shareBytes;
  v.window.channels = config_.channels;
  v.wait.abort = abort_;
  v.wait.relay = m.relay;
  v.wait.verdict = verdict_;
  v.wait.desk = desk_;
  v.wait.board = m.board;
  v.wait.own = m.board + rank;
  v.wait.signature = launch * 0x9e3779b97f4a7c15u;
  return v;
}

bool Fabric::await() {
  using Clock = std::chrono::steady_clock;
  const auto limit = Clock::now() + std::chrono::milliseconds(config_.hostMs);
  for (const Member& m : members_) {
    PROBE_CHECK(cudaSetDevice(m.device));
    cudaError_t state = cudaErrorNotReady;
    while ((state = cudaStreamQuery(m.stream)) == cudaErrorNotReady && Clock::now() < limit) std::this_thread::yield();
    if (state == cudaErrorNotReady) {
      std::fprintf(stderr, "no end after %llu ms: aborting\n", static_cast<unsigned long long>(config_.hostMs));
      abort();
      const auto grace = Clock::now() + std::chrono::seconds(2);
      while ((state = cudaStreamQuery(m.stream)) == cudaErrorNotReady && Clock::now() < grace) std::this_thread::yield();
      std::fprintf(stderr, state == cudaErrorNotReady ? "the abort word did not help\n" : "the abort word ended it\n");
      break;
    }
    PROBE_CHECK(state);
  }
  if (*reinterpret_cast<volatile uint32_t*>(abort_) == 0) return true;
  const Verdict& v = *verdict_;
  if (v.state != Verdict::Empty)
    std::fprintf(stderr, "gave up: rank %d, channel %d, step %d of launch %llu, waited for %s of %d: expected %llu, saw %llu\n", v.rank,
                 v.channel, v.step, static_cast<unsigned long long>(v.launch), nameOf(v.waiting), v.peer,
                 static_cast<unsigned long long>(v.expected), static_cast<unsigned long long>(v.seen));
  if (desk_->lasting.state == Verdict::Complete)
    std::fprintf(stderr, "had told after %llu ms that it waits for %s of %d\n",
                 static_cast<unsigned long long>(desk_->lasting.waitedNs / 1'000'000), nameOf(desk_->lasting.waiting), desk_->lasting.peer);
  return false;
}

}  // namespace tutti::probe
