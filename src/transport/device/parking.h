// Two things that endpoints of one process share: host pages that CUDA knows, and memory of endpoints that are gone, as long as somebody
// may still touch it.
//
// Owner: the process (comm/process.h). Any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/device_host.h"
#include "memory/device_scratch.h"
#include "transport/device/page.h"
#include "transport/device/segments.h"
#include "transport/device/stages.h"
#include "transport/local/hub.h"

namespace tutti::transport::device {

/// Host memory that several ranks of the process share is registered once: the driver takes no range twice.
class HostPages {
 public:
  struct Registered {
    std::shared_ptr<local::Hub> hub;  // keeps it mapped: goes last
    memory::RegisteredHost memory;
  };
  /// [data, data + bytes), which `hub` keeps mapped. It stays registered as long as somebody holds what is returned.
  Result<std::shared_ptr<Registered>> use(const memory::Gpu& gpu, void* data, Bytes bytes, std::shared_ptr<local::Hub> hub);

 private:
  std::mutex mutex_;
  std::map<void*, std::weak_ptr<Registered>> known_;
};

/// A graph with kernels of an endpoint. Whoever captured it holds one, and so does the graph, in which it outlives all launches.
struct GraphMark {
  std::atomic<bool> isGone = false;  ///< the graph, and all that was made of it (release; readers: acquire)
};

/// What kernels of an endpoint that is gone may still touch, beside what was its own.
struct Kept {
  bool forEver = false;                            ///< a kernel has not ended, and may never
  std::vector<std::shared_ptr<GraphMark>> graphs;  ///< until all of them are gone
  std::vector<memory::Bank> banks;
  std::vector<driver::cuda::OwnedStream> streams;    ///< of copies
  std::vector<std::shared_ptr<const void>> windows;  ///< of the user, with what is mapped of peers
  driver::cuda::OwnedEvent event;  ///< that the graphs use
  std::unique_ptr<StageWatch::Seat> seat;  ///< who looks after what streams wait for
};

/// A peer's kernel that ends later may still give back a slot of a pipe whose other side has gone. Banks wait here until all ranks of their
/// communicator have left, or died. A rank whose calls are in graphs has not left before the last of them is gone.
/// Host pages wait longer, until no endpoint of the process is left: the driver takes a registration back only when all kernels of the
/// process have ended, and one of another communicator may wait for a rank whose thread this is.
class Parking {
 public:
  struct Car {
    std::shared_ptr<local::Hub> hub;
    Page page;
    std::vector<memory::Bank> banks;
    std::shared_ptr<HostPages::Registered> registered;
    // Where kernels may still be launched, or run.
    Rank rank{-1};
    std::vector<Reached> reached;  ///< of peers
    Kept kept;
  };
  /// An endpoint is there, until it leaves.
  void arrive();
  /// Gives back what nobody touches any more, this one if it may.
  void leave(Car car);
  /// How many endpoints that gave anything back.
  size_t sweep();
  size_t size() const;

 private:
  static void letGo(Car& car);
  mutable std::mutex mutex_;
  std::vector<Car> cars_;
  size_t present_ = 0;
  std::vector<std::shared_ptr<HostPages::Registered>> retired_;
};

}  // namespace tutti::transport::device
