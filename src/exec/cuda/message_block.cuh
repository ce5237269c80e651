// What the kernels of launches that hold a few messages and nothing else share: over pipes of cells or of lines, no program, no jobs, no
// roles, no shared memory. The pipes, slots, counts and flags are those of pipe.h, so the other side of a message may be on the kernel of
// programs.
//
// A block carries out its channel of every message that begins at or before it, one after the other, with all threads.
// 1. `Derived` says how a piece lies in a slot: send() stores one, receive() waits for one and loads it, by all threads. An empty piece
//    still has one cell or line.
// 2. The sender keeps in its end what it has last seen of `freed`, and looks again when its data is on its way: a message for which
//    that leaves room does not wait for a look.
// 3. The receiver frees the last piece of a message when the next one begins, so that nobody waits for a fence. A sender that has filled
//    all slots but one may therefore wait for the next receive.
// 4. Each warp reads the end for itself; it is written when all threads have met. Once a wait has given up nothing is signalled any more.
#pragma once

#include "exec/cuda/kernels.h"
#include "exec/cuda/lone_message.h"
#include "exec/cuda/plain.cuh"
#include "exec/cuda/wait.cuh"

namespace tutti::exec::cuda {

__device__ __forceinline__ int32_t laneOfWarp() { return static_cast<int32_t>(threadIdx.x % 32); }
__device__ __forceinline__ uint64_t fromLane(uint64_t value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
template <class T>
__device__ __forceinline__ T* fromLane(T* value, int lane) {
  return reinterpret_cast<T*>(fromLane(reinterpret_cast<uint64_t>(value), lane));
}

template <class Derived, Protocol kOfPipes>
class MessageBlock {
 public:
  /// `followsAnother`: of this launch, on this block.
  __device__ __forceinline__ MessageBlock(const CommView& comm, const LoneMessage& message, int32_t channel, bool followsAnother)
      : comm_(comm), message_(message), channel_(channel), followsAnother_(followsAnother) {}

  __device__ __forceinline__ bool hasFailed() const { return failed_; }

  __device__ __forceinline__ void run() {
    if (message_.peer == comm_.rank) return copyAll();
    if (!findEnd()) return;
    if (!message_.sends && threadIdx.x == 0) {
      if (followsAnother_) arch::fenceAcqRelSys();  // else the launch that has read the piece has ended
      arch::storeRelaxedSys(end_.tell, end_.done);
    }
    const auto pieceBytes = static_cast<uint32_t>(carriedBytes(kOfPipes, comm_.pipes.slotBytes));
    const int32_t slices = message_.geometry.slices;
    bool isFirst = true;
#pragma unroll 1
    for (int32_t slice = 0; slice < slices; ++slice) {
      Range range = rangeOf(slice);
      do {
        if (!isFirst) betweenPieces();
        isFirst = false;
        const uint32_t bytes = static_cast<uint32_t>(min(range.bytes, static_cast<uint64_t>(pieceBytes)));
        if (message_.sends) {
          awaitSlot();
          if (!failed_) derived().send(message_.in + range.begin, bytes, end_.done + 1);
        } else {
          derived().receive(message_.out + range.begin, bytes, end_.done + 1);
        }
        ++end_.done;
        range.begin += bytes;
        range.bytes -= bytes;
      } while (range.bytes > 0);
    }
    failed_ = __syncthreads_or(static_cast<int>(failed_)) != 0;
    if (threadIdx.x != 0 || failed_) return;
    PipeEnd& end = ends()[place_];
    end.done = end_.done;
    if (message_.sends) end.freed = arch::loadAcquireSys(end_.wait);
  }

 protected:
  __device__ __forceinline__ WaitNote note(Waiting waiting) const { return {waiting, comm_.rank, message_.peer, pipeChannel(), 0}; }
  __device__ __forceinline__ arch::Words2* slot() const {
    return reinterpret_cast<arch::Words2*>(end_.slots + end_.done % static_cast<uint32_t>(comm_.pipes.slots) * comm_.pipes.slotBytes);
  }

  const CommView& comm_;
  const LoneMessage& message_;
  PipeEnd end_;  ///< the same in all threads
  bool failed_ = false;

 private:
  __device__ __forceinline__ Derived& derived() { return *static_cast<Derived*>(this); }

  struct Range {
    uint64_t begin;
    uint64_t bytes;
  };
  __device__ __forceinline__ Range rangeOf(int32_t slice) const {
    const algo::Range elems = message_.geometry.range(0, channel_, slice);
    return {elems.begin * message_.elementBytes, elems.elems * message_.elementBytes};
  }
  __device__ __forceinline__ int32_t pipeChannel() const { return channel_ + message_.firstChannel; }
  __device__ __forceinline__ PipeEnd* ends() const { return comm_.pipes.ends + pipeChannel() * kMostEnds; }

  /// Every warp for itself: each thread loads an end, so that all of them come in one flight. False, and the end of the communicator, where
  /// the pipe was never opened.
  __device__ __forceinline__ bool findEnd() {
#pragma unroll 1
    for (int first = 0; first < kMostEnds; first += 32) {
      const PipeEnd own = ends()[first + laneOfWarp()];
      const bool isIt = own.peer == message_.peer && own.port == algo::kUserPort && own.sends == message_.sends;
      const uint32_t found = __ballot_sync(0xffffffffu, isIt);
      if (found == 0) continue;
      const int lane = __ffs(static_cast<int>(found)) - 1;
      end_.slots = fromLane(own.slots, lane);
      end_.wait = fromLane(own.wait, lane);
      end_.tell = fromLane(own.tell, lane);
      end_.done = fromLane(own.done, lane);
      end_.freed = fromLane(own.freed, lane);
      place_ = first + lane;
      return true;
    }
    if (threadIdx.x == 0) reportGiveUp(comm_.wait, note(Waiting::None), 0, 0);
    failed_ = true;
    return false;
  }

  /// Before the slot of another piece: a receiver's last one is free when all its threads have read it.
  __device__ __forceinline__ void betweenPieces() {
    if (message_.sends) return;
    failed_ = __syncthreads_or(static_cast<int>(failed_)) != 0;
    if (threadIdx.x != 0 || failed_) return;
    arch::fenceAcqRelSys();
    arch::storeRelaxedSys(end_.tell, end_.done);
  }


  __device__ __forceinline__ void awaitSlot() {
    const auto slots = static_cast<uint64_t>(comm_.pipes.slots);
    if (end_.done < slots + end_.freed) return;
    const uint64_t expected = end_.done + 1 - slots;
    uint64_t freed = 0;
    if (laneOfWarp() == 0) {
      failed_ = failed_ || !waitUntil(comm_.wait, note(Waiting::ForSlot), expected, [&](uint64_t& seen) {
                  seen = freed = arch::loadAcquireSys(end_.wait);
                  return seen >= expected;
                });
    }
    end_.freed = fromLane(freed, 0);
    failed_ = __any_sync(0xffffffffu, failed_);
  }

  __device__ __forceinline__ void copyAll() {
    if (!message_.sends || message_.in == message_.out) return;
#pragma unroll 1
    for (int32_t slice = 0; slice < message_.geometry.slices; ++slice) {
      const Range range = rangeOf(slice);
#pragma unroll 1
      for (uint64_t at = kCellDataBytes * threadIdx.x; at < range.bytes; at += kCellDataBytes * blockDim.x)
        storePlain(message_.out + range.begin, at, loadPlain(message_.in + range.begin, at, range.bytes, message_.elementBytes),
                   range.bytes, message_.elementBytes);
    }
  }

  const int32_t channel_;
  const bool followsAnother_;
  int32_t place_ = 0;
};

template <class Block>
__global__ void __launch_bounds__(mostLoneThreads(Block::kProtocol), 1) loneMessageKernel(const __grid_constant__ LoneMessages launch) {
  arch::waitForPrecedingGrids();
  if (gridDim.x <= kMostEarlyBlocks) arch::allowNextGrid();
  if (blockIdx.x == 0 && threadIdx.x == blockDim.x - 1) postOnBoards(launch.comm.wait);
  bool isFirst = true;
#pragma unroll 1
  for (int32_t m = 0; m < launch.count; ++m) {
    const LoneMessage& message = launch.message[m];
    const int32_t channel = static_cast<int32_t>(blockIdx.x) - message.firstBlock;
    if (channel < 0 || channel >= message.geometry.channels) continue;
    if (!isFirst) __syncthreads();  // it may use the end, and the memory, of the one before
    Block block(launch.comm, message, channel, !isFirst);
    block.run();
    if (block.hasFailed()) return;  // in all threads alike
    isFirst = false;
  }
}

}  // namespace tutti::exec::cuda
