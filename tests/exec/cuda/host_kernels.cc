#include "exec/cuda/host_kernels.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/format.h"
#include "exec/cuda/host_block.h"
#include "exec/cuda/loops.h"
#include "exec/host/reduce/reduce.h"

namespace tutti::exec::cuda {
namespace {

using driver::cuda::DevicePtr;

constexpr int32_t kMultiprocessors = 132;  // of a fake device
std::mutex countsMutex;
HostCounts counted;
std::atomic<int> aloneMs = 0;

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "\nA LAUNCH BREAKS ITS CONTRACT: %s\n", why.c_str());
  std::fflush(stderr);
  std::abort();
}

/// What a device may touch.
class Reach {
 public:
  Reach(const driver::cuda::FakeApi& fake, driver::cuda::Device device) : fake_(fake), device_(device) {}
  void demand(const void* memory, uint64_t bytes, const std::string& what) const {
    if (bytes == 0 || fake_.accessible(device_, reinterpret_cast<DevicePtr>(memory), Bytes(bytes))) return;
    refuse(format("device {} cannot access {}: {} bytes at {}", device_, what, bytes, memory));
  }

 private:
  const driver::cuda::FakeApi& fake_;
  driver::cuda::Device device_;
};

/// Ends that the program of a work names, and what it reads and writes.
class Checker {
 public:
  Checker(KernelId kernel, const Launch& launch, const Reach& reach) : kernel_(kernel), launch_(launch), reach_(reach) {}

  void checkAll(int32_t blocks) {
    int32_t most = 0;
    for (int32_t w = 0; w < launch_.works; ++w) {
      const Work& work = launch_.work[w];
      most = std::max(most, work.firstBlock + work.blocks());
      checkWork(work);
    }
    if (most != blocks) refuse(format("{} blocks are launched, and works have {}", blocks, most));
    if (blocks > kMultiprocessors) refuse(format("{} blocks do not fit onto the device", blocks));
    const WaitControl& wait = launch_.comm.wait;
    reach_.demand(wait.abort, sizeof *wait.abort, "the abort word");
    reach_.demand(wait.verdict, sizeof *wait.verdict, "the verdict");
    reach_.demand(wait.desk, sizeof *wait.desk, "its desk");
    reach_.demand(wait.relay, sizeof *wait.relay, "the relay");
    if (wait.board == nullptr) return;
    reach_.demand(wait.board, kBoardPeers * sizeof(BoardEntry), "its board");
    reach_.demand(wait.own, sizeof(BoardEntry), "its own entry");
    if (wait.own < wait.board || wait.own >= wait.board + kBoardPeers) refuse("its own entry is not on its own board");
    for (const BoardEntry* entry : wait.post)
      if (entry != nullptr) reach_.demand(entry, sizeof *entry, "a peer's board");
  }

 private:
  void checkWork(const Work& work) {
    const algo::Geometry& g = work.geometry;
    if (!g.isComplete() && g.slices < 1) refuse("slices do not cover the data");
    if (work.scaling.hasFactor && work.factorSource != nullptr) reach_.demand(work.factorSource, sizeOf(work.type), "a factor");
    for (int32_t b = 0; b < work.blocks(); ++b) {
      const int32_t channel = b / work.lanes;
      const int32_t lane = work.firstLane + b % work.lanes;
      const uint64_t* const words = work.program.at(channel, lane);
      reach_.demand(words, work.program.shape.laneWords * sizeof(uint64_t), "a program");
      const auto& head = *reinterpret_cast<const ProgramHead*>(words);
      const auto* const steps = reinterpret_cast<const ProgramStep*>(words + 1);
      for (int32_t i = 0; i < head.steps; ++i) checkStep(work, steps[i], channel, work.firstBlock + b);
    }
  }

  void checkStep(const Work& work, const ProgramStep& s, int32_t channel, int32_t block) {
    if (s.reduce && loopType(work.type) != loopType(launch_.type)) refuse("works of several loop types share a launch");
    for (int32_t slice = 0; slice < work.geometry.slices;
         slice = slice + 1 == work.geometry.slices ? slice + 1 : work.geometry.slices - 1) {
      checkBuffer(work, s.srcBuffer, work.geometry.range(s.srcChunk, channel, slice));
      checkBuffer(work, s.dstBuffer, work.geometry.range(s.dstChunk, channel, slice));
    }
    const int32_t pipeChannel = channel + work.firstChannel;
    if (s.kind == algo::Kind::Pipe) {
      for (int i = 0; i < s.froms + s.tos; ++i)
        checkPipe(s.port, i >= s.froms, i >= s.froms ? s.to[i - s.froms] : s.from[i], pipeChannel, block);
    } else if (s.kind != algo::Kind::Give && s.kind != algo::Kind::Take) {
      checkWindow(s, pipeChannel, block);
    }
  }

  void checkBuffer(const Work& work, algo::Buffer buffer, const algo::Range& range) const {
    if (buffer == algo::Buffer::None || range.elems == 0) return;
    const std::byte* const base = buffer == algo::Buffer::In ? work.in : work.out;
    reach_.demand(base + range.begin * sizeOf(work.type), range.elems * sizeOf(work.type), "a caller's buffer");
  }

  void checkPipe(uint8_t port, bool sends, int32_t peer, int32_t channel, int32_t block) {
    const PipeView& pipes = launch_.comm.pipes;
    PipeEnd* const ends = pipes.ends + static_cast<ptrdiff_t>(channel) * kMostEnds;
    reach_.demand(ends, kMostEnds * sizeof(PipeEnd), "its directory of ends");
    int found = -1;
    for (int e = 0; e < kMostEnds && ends[e].peer >= 0 && found < 0; ++e)
      if (ends[e].peer == peer && ends[e].port == port && ends[e].sends == sends) found = e;
    if (found < 0)
      refuse(format("rank {} has no pipe {} rank {}, port {}, channel {}", launch_.comm.rank, sends ? "to" : "from", peer, port, channel));
    const auto [at, isNew] = users_.try_emplace(ends + found, block);
    if (at->second != block) refuse(format("blocks {} and {} use the same end", at->second, block));
    if (!isNew) return;
    reach_.demand(ends[found].slots, static_cast<uint64_t>(pipes.slots) * pipes.slotBytes, "slots");
    reach_.demand(ends[found].wait, sizeof(uint64_t), "a counter of its own");
    reach_.demand(ends[found].tell, sizeof(uint64_t), "a peer's counter");
  }

  void checkWindow(const ProgramStep& s, int32_t channel, int32_t block) {
    const WindowView& window = launch_.comm.window;
    if (channel >= window.channels) refuse("the window has fewer channels");
    const auto [at, isNew] = users_.try_emplace(window.epochs + channel, block);
    if (at->second != block) refuse(format("blocks {} and {} use the same channel of a window", at->second, block));
    const bool isData = kernelInfo(kernel_).protocol == Protocol::Simple;
    for (int32_t owner : {launch_.comm.rank, s.tos > 0 ? s.to[0] : launch_.comm.rank}) {
      reach_.demand(window.base[owner], windowBytes(launch_.comm.ranks, window.channels, window.shareBytes), "a window");
      if (isData) reach_.demand(window.arrivals[owner], arrivalBytes(channel + 1), "arrivals");
    }
  }

  const KernelId kernel_;
  const Launch& launch_;
  const Reach& reach_;
  std::map<void*, int32_t> users_;  // blocks, by what they use
};

/// Blocks take turns; a launch of which none can go on lets others have the core.
void play(KernelId kernel, const Launch& launch, int32_t blocks) {
  constexpr int kPatience = 200;  // turns, before it sleeps
  std::vector<std::unique_ptr<HostBlock>> live;
  for (int32_t b = 0; b < blocks; ++b) live.push_back(std::make_unique<HostBlock>(kernel, launch, b));
  for (int idle = 0; !live.empty();) {
    bool hasMoved = false;
    for (const auto& block : live) {
      hasMoved = block->advance() || hasMoved;
      if (!block->fault().empty()) refuse(block->fault());
    }
    std::erase_if(live, [](const auto& block) { return block->hasEnded(); });
    idle = hasMoved ? 0 : idle + 1;
    if (idle > kPatience) {
      constexpr timespec kNap{0, 50'000};
      nanosleep(&kNap, nullptr);
    } else if (!hasMoved) {
      sched_yield();
    }
  }
}

Status put(driver::cuda::FakeApi& fake, void* stream, std::function<void()> play) {
  const driver::cuda::Error error = fake.enqueue(static_cast<driver::cuda::Stream>(stream), std::move(play));
  if (error == driver::cuda::Error::Success) return {};
  return tutti::error(Code::UnhandledCudaError, "the launch failed: {}", static_cast<int>(error));
}

}  // namespace

void HostKernels::delayAlone(int ms) { aloneMs.store(ms); }
HostCounts HostKernels::counts() {
  const std::lock_guard lock(countsMutex);
  HostCounts all = counted;
  all.streamStages = driver::cuda::FakeApi::streamBatches();
  all.copyStages += all.streamStages;
  return all;
}

Status HostKernels::load(KernelUses& uses) {
  for (KernelUse& use : uses.of) use.blocksPerMultiprocessor = 1;
  uses.lone.blocksPerMultiprocessor = uses.mapped.blocksPerMultiprocessor = 1;
  return {};
}

Status HostKernels::launch(KernelId kernel, const Launch& launch, const LaunchOptions& options, void* stream) {
  driver::cuda::Device device = -1;
  if (fake_.ctxGetDevice(&device) != driver::cuda::Error::Success) return error(Code::UnhandledCudaError, "no context is current");
  if (launch.works > kInlineWorks) refuse("works in device memory: this player has none of them");
  Checker(kernel, launch, Reach(fake_, device)).checkAll(options.blocks);
  {
    const std::lock_guard lock(countsMutex);
    ++counted.launches;
    counted.mostBlocks = std::max(counted.mostBlocks, options.blocks);
  }
  const auto copy = std::make_shared<const Launch>(launch);
  return put(fake_, stream, [kernel, copy, blocks = options.blocks] { play(kernel, *copy, blocks); });
}

namespace {

/// All peers' threads, as one that takes turns with whoever else runs.
class HostCopySide {
 public:
  explicit HostCopySide(const CopyLaunch& launch) : launch_(launch) {}
  int thread() const { return 0; }
  int threads() const { return 1; }
  void meet() const {}
  void fence() const {}
  void post() const { postOnBoards(launch_.wait); }
  bool hasGivenUp() const { return std::atomic_ref(launch_.wait.relay->stop).load(std::memory_order_relaxed) != 0; }
  uint64_t load(const uint64_t* p) const { return std::atomic_ref(const_cast<uint64_t&>(*p)).load(std::memory_order_relaxed); }
  uint64_t loadAcquire(const uint64_t* p) const { return std::atomic_ref(const_cast<uint64_t&>(*p)).load(std::memory_order_acquire); }
  void store(uint64_t* p, uint64_t v) const { std::atomic_ref(*p).store(v, std::memory_order_release); }  // fence() and a relaxed store
  template <class Attempt>
  bool await(Waiting waiting, int peer, uint64_t expected, Attempt&& attempt) const {
    HostWait wait;
    for (uint64_t seen = 0; !attempt(seen);) {
      if (wait.givesUp(launch_.wait, {waiting, launch_.rank, peer, 0, 0, expected, seen})) return false;
      constexpr timespec kNap{0, 50'000};
      nanosleep(&kNap, nullptr);
    }
    return true;
  }
  void report(Waiting waiting, int peer, uint64_t expected, uint64_t seen) const {
    HostWait::report(launch_.wait, {waiting, launch_.rank, peer, 0, 0, expected, seen});
  }

 private:
  const CopyLaunch& launch_;
};

void demandCall(const Reach& reach, const CopyLaunch& launch) {
  reach.demand(launch.state, sizeof *launch.state, "its state");
  reach.demand(launch.own, static_cast<uint64_t>(launch.ranks) * sizeof(CopyFlag), "its flags");
  for (int32_t peer = 0; peer < launch.ranks; ++peer)
    if (((launch.writers | launch.written) >> peer & 1) != 0) reach.demand(launch.theirs[peer], sizeof(CopyFlag), "a peer's flag");
}

}  // namespace

Status HostKernels::copies(const CopyLaunch& launch, CopyStage stage, void* stream) {
  driver::cuda::Device device = -1;
  if (fake_.ctxGetDevice(&device) != driver::cuda::Error::Success) return error(Code::UnhandledCudaError, "no context is current");
  {
    const std::lock_guard lock(countsMutex);
    ++counted.copyStages;
  }
  demandCall(Reach(fake_, device), launch);
  const auto play = [copy = launch, stage] {
    HostCopySide side(copy);
    (void)CopyStep<HostCopySide>(copy, side).run(stage);
  };
  return put(fake_, stream, play);
}

Status HostKernels::moved(const MovedLaunch& launch, const Grid& grid, void* stream) {
  driver::cuda::Device device = -1;
  if (fake_.ctxGetDevice(&device) != driver::cuda::Error::Success) return error(Code::UnhandledCudaError, "no context is current");
  {
    const std::lock_guard lock(countsMutex);
    ++counted.moved;
    counted.movedBlocks = grid.blocks;
  }
  const Reach reach(fake_, device);
  demandCall(reach, launch.call);
  const bool areSeveral = grid.blocks > 1;
  if (areSeveral && (launch.givers < 1 || launch.givers > grid.blocks || (launch.givers < grid.blocks) != (launch.given < launch.pieces)))
    refuse(format("{} of {} blocks give {} of {} pieces", launch.givers, grid.blocks, launch.given, launch.pieces));
  if (launch.given < launch.pieces - 1 || launch.given > launch.pieces) refuse("more than one piece is a rank's own");
  for (int32_t p = 0; p < launch.pieces; ++p) {
    const auto places = reinterpret_cast<uintptr_t>(launch.piece[p].from) | reinterpret_cast<uintptr_t>(launch.piece[p].to);
    if ((places | launch.piece[p].bytes) % launch.elementBytes != 0) refuse("a piece is no multiple of its elements");
    reach.demand(launch.piece[p].from, launch.piece[p].bytes, "a piece");
    reach.demand(launch.piece[p].to, launch.piece[p].bytes, "where a piece goes");
  }
  return put(fake_, stream, [launch, areSeveral, givers = areSeveral ? launch.givers : 1] {
    HostCopySide side(launch.call);
    CopyStep<HostCopySide> step(launch.call, side, areSeveral);
    const auto move = [](const MovedPiece& piece) { std::memcpy(piece.to, piece.from, piece.bytes); };
    const auto moveOwn = [&] { std::for_each(launch.piece + launch.given, launch.piece + launch.pieces, move); };
    if (areSeveral) moveOwn();  // by blocks that wait for nobody
    if (!step.run(CopyStage::Begin)) return;
    for (int32_t giver = 0; giver < givers; ++giver) {
      for (int32_t p = 0; p < launch.given; ++p) {
        const MovedPiece& piece = launch.piece[p];
        const MappedPart part = areSeveral ? mappedPart(piece.bytes, giver, givers) : MappedPart{0, piece.bytes};
        move({piece.from + part.begin, piece.to + part.begin, part.bytes});
      }
    }
    step.tellAll(CopyStage::End);
    if (!areSeveral) moveOwn();
    (void)step.awaitAll(CopyStage::End);
  });
}

namespace {

/// One block after the other; a part is combined as a whole before anything of it is stored.
void playMapped(const MappedLaunch& launch, int32_t blocks) {
  HostCopySide side(launch.call);
  CopyStep<HostCopySide> step(launch.call, side, true);
  CopyStep<HostCopySide> other(launch.call, side, true);  // another block of it
  if (launch.isAlone ? side.hasGivenUp() : !(step.run(CopyStage::Begin) && other.join())) return;
  if (launch.isAlone) std::this_thread::sleep_for(std::chrono::milliseconds(aloneMs.load()));
  const host::ReduceFn combine = host::selectReduce(launch.type, launch.op, host::SimdLevel::Portable);
  const uint32_t scaled = launch.scaling.hasFactor ? (uint32_t{1} << launch.sources) - 1 : 0;
  for (int32_t block = 0; block < blocks; ++block) {
    const MappedPart part = mappedPart(launch.bytes, block, blocks);
    std::vector<std::byte> sum(part.bytes);
    const void* sources[kMaxLocalRanks];
    for (int32_t s = 0; s < launch.sources; ++s) sources[s] = launch.source[s] + part.begin;
    if (part.bytes == 0) continue;
    combine(sum.data(), sources, launch.sources, part.bytes / sizeOf(launch.type), {launch.type, launch.op, launch.scaling}, scaled, true);
    for (int32_t t = 0; t < launch.targets; ++t) std::memcpy(launch.target[t] + part.begin, sum.data(), sum.size());
  }
  if (launch.isAlone) return;
  (void)CopyStep<HostCopySide>(launch.call, side, true).run(CopyStage::End);  // by whichever block is the last one
}

}  // namespace

Status HostKernels::mapped(const MappedLaunch& launch, const Grid& grid, void* stream) {
  driver::cuda::Device device = -1;
  if (fake_.ctxGetDevice(&device) != driver::cuda::Error::Success) return error(Code::UnhandledCudaError, "no context is current");
  {
    const std::lock_guard lock(countsMutex);
    ++counted.mapped;
    counted.mappedBlocks = grid.blocks;
  }
  const Reach reach(fake_, device);
  demandCall(reach, launch.call);
  for (int32_t s = 0; s < launch.sources; ++s) reach.demand(launch.source[s], launch.bytes, "a rank's input");
  for (int32_t t = 0; t < launch.targets; ++t) reach.demand(launch.target[t], launch.bytes, "a rank's output");
  return put(fake_, stream, [launch, blocks = grid.blocks] { playMapped(launch, blocks); });
}

}  // namespace tutti::exec::cuda
