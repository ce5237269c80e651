// What the ranks of this process compute with, and the GPUs that it uses: each opened once, with the library's memory on it.
//
// Owner: the process (comm/process.h); tests make their own on a fake driver. Any thread. A GPU that has been opened stays open, at a fixed
// address.
// 1. Nothing of CUDA happens before somebody asks whether there are GPUs.
// 2. Every kernel of the library is loaded when a GPU is opened, none later.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "comm/captures.h"
#include "comm/peer_paths.h"
#include "driver/cuda/driver.h"
#include "exec/cuda/launch.h"
#include "memory/device_allocator.h"
#include "memory/device_scratch.h"
#include "transport/device/endpoint.h"
#include "transport/device/parking.h"
#include "transport/device/segments.h"

namespace tutti::comm {

/// The launches of all communicators of a GPU, one after the other: NCCL_LAUNCH_ORDER_IMPLICIT. Two kernels of two communicators that wait
/// for their peers, each on the blocks that the other's peer needs, would wait for ever; one order on all ranks prevents it.
struct LaunchOrder {
  explicit LaunchOrder(driver::cuda::Driver& driver) : captures(driver) {}
  std::mutex mutex;                // held while a communicator launches; protects what follows
  driver::cuda::OwnedEvent ended;  // recorded behind the latest launch or graph of any communicator
  Captures captures;
};

/// A GPU of this process. Everything but `kernels` locks for itself; nothing changes after it was opened.
struct Device {
  Device(std::unique_ptr<memory::Gpu> opened, Bytes limit)
      : gpu(std::move(opened)),
        budget(gpu->device(), limit),
        pool(*gpu, budget),
        hostBudget(gpu->device(), Bytes(0)),
        hostPool(*gpu, hostBudget, memory::Place::Host) {}
  std::unique_ptr<memory::Gpu> gpu;
  memory::Budget budget;
  memory::ScratchPool pool;
  memory::Budget hostBudget;  ///< of memory of the host: counted, not limited
  memory::ScratchPool hostPool;
  exec::cuda::KernelUses kernels;
  /// Stores of 128 bytes arrive whole and in order at all devices that it reaches: what NVLink does, from sm_90 on
  /// (tests/gpu/ll128_torture), and buses are not known to.
  bool keepsLines = false;
  std::atomic<int32_t> ranks = 0;      ///< of communicators that use it
  driver::cuda::OwnedStream stream;    ///< for copies at set-up
  std::unique_ptr<LaunchOrder> order;  ///< null: each communicator is its own
};

class Devices {
 public:
  /// How the driver and the kernels come; null: none, and why.
  using OpenDriver = std::function<Result<std::unique_ptr<driver::cuda::Api>>()>;
  using OpenExecutor = std::function<std::unique_ptr<exec::cuda::Executor>()>;
  Devices(OpenDriver openDriver, OpenExecutor openExecutor);

  /// TUTTI_DEVICE: whether new ranks compute with GPUs. InvalidUsage: they are asked for and there are none, or the variable makes no
  /// sense. With `auto` a driver that has GPUs and does not work is an error, and no driver or no GPU is none.
  Result<bool> useGpus();
  /// How many there are. Only where useGpus().
  Result<int32_t> count();
  /// The GPU that is current in this thread; 0 where it has chosen none.
  Result<int32_t> current();
  /// Opened, with its kernels, when first asked for.
  Result<Device*> at(int32_t ordinal);
  /// The open one; null where it is not open.
  Device* find(int32_t ordinal) const;

  driver::cuda::Driver& driver() { return *driver_; }
  /// Null before a GPU was asked for.
  driver::cuda::Driver* openedDriver() const { return driver_.get(); }
  exec::cuda::Executor& executor() { return *executor_; }

  /// Closes all GPUs and begins anew with others. Only while nothing of a GPU is in use: no communicator, no memory, no call.
  void replaceForTest(OpenDriver openDriver, OpenExecutor openExecutor);
  /// InvalidUsage: a variable that says how GPUs reach each other makes no sense.
  Result<transport::device::Surroundings> around(Device& device);
  /// How often replaceForTest() has been called.
  uint64_t generation() const { return generation_; }

  /// ncclMemAlloc: memory of the current GPU.
  Result<void*> allocate(Bytes bytes);
  /// False: it was not allocated here.
  bool free(void* pointer);

 private:
  Status start();
  Result<std::unique_ptr<Device>> open(int32_t ordinal);

  OpenDriver openDriver_;
  OpenExecutor openExecutor_;
  mutable std::mutex mutex_;  ///< protects what follows; driver_ and executor_ stay once they are there
  std::optional<Status> started_;
  uint64_t generation_ = 0;
  bool isThere_ = false;  // a driver with devices, whether or not it works
  std::unique_ptr<driver::cuda::Driver> driver_;
  std::unique_ptr<exec::cuda::Executor> executor_;
  transport::device::HostPages pages_;
  transport::device::PairBook pairs_;
  transport::device::Connecting connecting_;
  transport::device::StageWatch watch_;  // goes behind all pages
  PeerPaths paths_;
  std::map<int32_t, std::unique_ptr<Device>> devices_;
  transport::device::Parking parking_;  // goes before the devices: banks lie on them
  memory::DeviceAllocator allocator_;
  transport::device::Segments segments_;
  std::atomic<bool> hasToldOfLevel_ = false;
};

}  // namespace tutti::comm
