// A lane with roles: one block of workers that move data, a warp that waits ahead of them and a warp that signals behind. A slice of a pipe
// travels in pieces, one slot each, so that a neighbour works on the first while the last is still under way.
//
//   waiter     goes through the program, waits for slots, data and arrivals, writes a job on a desk    ─ "ready" ─► workers
//   workers    carry the job out                                                                       ─ "moved" ─► signaller
//   signaller  tells the peers "freed" and, behind a fence, "filled" and "arrived", and other lanes "given"
//
// 1. Desk n % kDesks is written again only after the workers have met the signaller for desk n + 2, which it joins when it is done with n.
// 2. A slot is free when it has been read: what a worker has loaded is there before it stores it, so before it meets the signaller. PTX has
//    no word for that, its model asks for a fence; a fence would wait for the stores as well, and hardware cannot take a value back.
// 3. After a wait that gave up nothing is moved or signalled any more: the next desk ends the work.
#pragma once

#include "exec/cuda/waiting_lane.cuh"

namespace tutti::exec::cuda {

inline constexpr int kDesks = 4;

struct RoleShared : BlockShared {
  PipeEnd ends[kMostEnds];
  Desk desk[kDesks];
};

/// `Kind` says which protocol its pipes have (kProtocol), how many workers there are (kWorkers) and how they carry a job out (runJob).
template <class Kind>
class RoleLane : public WaitingLane<RoleLane<Kind>, RoleShared, Kind::kProtocol, Kind::kWorkers + 64> {
  using Waiter = WaitingLane<RoleLane<Kind>, RoleShared, Kind::kProtocol, Kind::kWorkers + 64>;
  friend Waiter;

 public:
  static constexpr int kWorkers = Kind::kWorkers;
  static constexpr int kThreads = kWorkers + 64;
  using Waiter::Waiter;

 private:
  static constexpr int kReady = 1;  ///< barrier of the waiter and the workers
  static constexpr int kMoved = 2;  ///< barrier of the workers and the signaller
  using Waiter::self;
  using Waiter::shared_;

  __device__ __forceinline__ void runRoles() {
    turn_ = 0;
    if (static_cast<int>(threadIdx.x) < kWorkers) {
      work();
    } else if (static_cast<int>(threadIdx.x) < kWorkers + 32) {
      signal();
    } else {
      this->waitAhead();
    }
  }

  // ---- waiter ------------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ Desk& desk() const { return shared_.desk[turn_ % kDesks]; }
  __device__ __forceinline__ void post(bool isEnd) {
    if (self() == 0) desk().isEnd = isEnd;
    arch::barrier(kReady, kWorkers + 32);
    ++turn_;
  }

  // ---- workers -----------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void work() {
    for (uint32_t turn = 0;; ++turn) {
      arch::barrier(kReady, kWorkers + 32);
      const Desk& desk = shared_.desk[turn % kDesks];
      const bool isEnd = desk.isEnd;
      if (!isEnd && !shared_.context.hasFailed()) Kind::runJob(desk.job, shared_);
      arch::barrier(kMoved, kWorkers + 32);
      if (isEnd) return;
    }
  }

  // ---- signaller ---------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void signal() {
    const int i = static_cast<int>(threadIdx.x) - kWorkers;
    for (uint32_t turn = 0;; ++turn) {
      arch::barrier(kMoved, kWorkers + 32);
      const Desk& desk = shared_.desk[turn % kDesks];
      if (desk.isEnd) return;
      if (i >= desk.signals || shared_.context.hasFailed()) continue;
      if (i >= desk.frees) arch::fenceAcqRelSys();
      arch::storeRelaxedSys(desk.signal[i], desk.value[i]);
    }
  }

  uint32_t turn_ = 0;  ///< the waiter's
};

}  // namespace tutti::exec::cuda
