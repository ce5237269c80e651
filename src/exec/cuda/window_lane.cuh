// Windows with flags inside the data: the kernel of the smallest latency. One block, every thread its own cells, no roles.
//
// All jobs of a slice are made at once, a thread each, and then carried out in order by all threads.
// 1. Between two rounds, and between two slices, all threads meet: the argument for two banks (algo/lane.h) needs it.
#pragma once

#include "exec/cuda/block.cuh"
#include "exec/cuda/fold_cells.cuh"

namespace tutti::exec::cuda {

struct WindowShared : BlockShared {
  Job job[kMostWindowSteps];
  uint64_t epoch;  ///< rounds that the channel had carried when the work began
};

template <DataType kType, int kThreads>
class WindowLane {
 public:
  static constexpr int kWorkers = kThreads;

  __device__ __forceinline__ WindowLane(const Launch& launch, WindowShared& shared) : launch_(launch), shared_(shared) {}

  __device__ __forceinline__ void run(const Place& place) {
    const WindowView& window = launch_.comm.window;
    if (threadIdx.x == 64) shared_.epoch = arch::loadRelaxedSys(window.epochs + place.pipeChannel);
    __syncthreads();
    const Program& program = shared_.program;
    const int32_t slices = shared_.work.geometry.slices;
    for (int32_t slice = 0; slice < slices; ++slice) {
      if (slice > 0) __syncthreads();
      if (static_cast<int>(threadIdx.x) < program.steps) makeJob(place, slice, static_cast<int>(threadIdx.x));
      __syncthreads();
      for (int i = 0; i < program.steps; ++i) {
        if (i > 0 && program.step[i].round != program.step[i - 1].round) __syncthreads();
        runCells<kType>(shared_.job[i], shared_.context);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) window.epochs[place.pipeChannel] = shared_.epoch + static_cast<uint64_t>(slices) * program.rounds;
  }

 private:
  __device__ __forceinline__ void makeJob(const Place& place, int32_t slice, int i) {
    const ProgramStep& s = shared_.program.step[i];
    const WindowView& window = launch_.comm.window;
    const int32_t self = launch_.comm.rank;
    const int32_t ranks = launch_.comm.ranks;
    const uint64_t epoch = shared_.epoch + static_cast<uint64_t>(slice) * shared_.program.rounds + s.round + 1;
    const Numbers& numbers = shared_.context.numbers;
    Job& job = shared_.job[i];
    const bool hasOwn = s.srcBuffer != algo::Buffer::None;
    const bool hasOut = s.dstBuffer != algo::Buffer::None;
    const algo::Range own = shared_.work.geometry.range(s.srcChunk, place.channel, slice);
    const algo::Range out = shared_.work.geometry.range(s.dstChunk, place.channel, slice);
    job.bytes = (hasOut ? out.elems : own.elems) * numbers.elementBytes;
    job.step = i;
    job.sources = job.targets = 1;
    job.plainSource = s.kind == algo::Kind::LoadReduce ? self : hasOwn ? 0 : -1;
    job.flaggedSources = job.flaggedTargets = 0;
    job.scaledSources = s.reduce && numbers.hasFactor ? 1 : 0;
    job.isLast = s.reduce && hasOut;
    job.rewriteBytes = 0;
    const std::byte* const ownBytes =
        (s.srcBuffer == algo::Buffer::In ? shared_.work.in : shared_.work.out) + own.begin * numbers.elementBytes;
    if (hasOwn) job.source[0] = ownBytes;
    if (hasOut) job.target[0] = shared_.work.out + out.begin * numbers.elementBytes;
    if (s.kind == algo::Kind::Store) {
      job.target[0] = window.shareAt(s.to[0], epoch, self, ranks, place.pipeChannel);
      job.targetFlag[0] = epoch;
      job.flaggedTargets = 1;
      if (epoch % kRewriteEvery < 2) job.rewriteBytes = shareRoom(Protocol::Cells, window.shareBytes);
    } else if (s.kind == algo::Kind::Arrive) {
      job.bytes = 0;
      job.source[0] = nullptr;
      job.target[0] = window.shareAt(s.to[0], epoch, self, ranks, place.pipeChannel);
      job.targetFlag[0] = epoch;
      job.flaggedTargets = 1;
      if (epoch % kRewriteEvery < 2) job.rewriteBytes = shareRoom(Protocol::Cells, window.shareBytes);
    } else if (s.kind == algo::Kind::Await) {
      job.bytes = 0;
      job.targets = 0;
      setCells(job, 0, s.from[0], epoch, place);
    } else if (s.kind == algo::Kind::Load) {
      setCells(job, 0, s.from[0], epoch, place);
    } else if (s.kind == algo::Kind::LoadReduce) {
      job.sources = ranks;
      job.scaledSources <<= self;
      for (int32_t r = 0; r < ranks; ++r) {
        if (r == self) {
          job.source[r] = ownBytes;
        } else {
          setCells(job, r, r, epoch, place);
        }
      }
    }
    job.isMove = !s.reduce || (job.sources == 1 && job.scaledSources == 0 && !(job.isLast && numbers.divisor > 1));
  }
  __device__ __forceinline__ void setCells(Job& job, int source, int32_t peer, uint64_t epoch, const Place& place) {
    job.source[source] = launch_.comm.window.shareOf(peer, epoch, launch_.comm.rank, launch_.comm.ranks, place.pipeChannel);
    job.sourceFlag[source] = epoch;
    job.sourcePeer[source] = peer;
    job.flaggedSources |= 1u << source;
  }

  const Launch& launch_;
  WindowShared& shared_;
};

}  // namespace tutti::exec::cuda
