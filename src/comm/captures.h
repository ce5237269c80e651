// The graphs into which a rank's calls are captured: their order in each, and who still needs what they use.
//
// Owner: DeviceRank. Used by the thread that uses the communicator.
// 1. In a graph the rank's works follow one another, whatever streams they were captured on.
// 2. A graph waits for an event before its first work, and records it behind its last: a root node and a leaf node, whatever the number of
//    works. So what waits for that event follows the graph, and the graph what recorded it.
// 3. Every graph holds a mark that says when it, and all that was made of it, is gone; no call of the driver is needed to notice.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "driver/cuda/driver.h"
#include "transport/device/parking.h"

namespace tutti::comm {

class Captures {
 public:
  explicit Captures(driver::cuda::Driver& driver) : driver_(driver) {}

  /// Work comes next on `stream`, which is captured as `capture` says. `ended`: what a new graph waits for; null: nothing.
  Status enter(driver::cuda::Stream stream, const driver::cuda::CaptureInfo& capture, driver::cuda::Event ended);
  /// Work was captured on it. `ended`: what the graph records; null: nothing.
  Status leave(driver::cuda::Stream stream, driver::cuda::Event ended);

  /// The mark of the graph of a capture whose work has been entered.
  std::shared_ptr<transport::device::GraphMark> markOf(const driver::cuda::CaptureInfo& capture) const;
  /// Whether some graph has gone since it was asked before.
  bool hasLost();
  /// Marks of the graphs that are still there.
  std::vector<std::shared_ptr<transport::device::GraphMark>> alive();

 private:
  struct Graph {
    uint64_t capture = 0;
    std::shared_ptr<transport::device::GraphMark> mark;
    std::vector<driver::cuda::GraphNode> tail;  // the latest work's
    driver::cuda::GraphNode record = nullptr;
  };
  Result<Graph*> at(const driver::cuda::CaptureInfo& capture);

  driver::cuda::Driver& driver_;
  const std::shared_ptr<std::atomic<bool>> hasLost_ = std::make_shared<std::atomic<bool>>(false);  ///< set after a mark
  std::vector<Graph> graphs_;
};

}  // namespace tutti::comm
