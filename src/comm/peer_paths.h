// How far the GPUs that this process sees are from each other, as far as settings want to know.
//
// Owner: Devices. Any thread.
// 1. GPUs between which the driver has native atomics are connected by NVLink: they are near whatever level but LOC is set, and nothing is
//    detected for them. For others the host's topology is detected once; where that fails one warning says so, and the driver decides
//    alone.
#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "driver/cuda/driver.h"
#include "topo/view.h"

namespace tutti::comm {

/// NCCL_P2P_LEVEL; nothing where it is not set. InvalidUsage: it is no level.
Result<std::optional<topo::PathType>> readPeerLevel();

class PeerPaths {
 public:
  /// What this host is, with all GPUs that the driver shows: what NCCL_TOPO_FILE says comes first, as for layouts.
  using Detect = std::function<Result<topo::Document>(driver::cuda::Driver&)>;
  static Result<topo::Document> detectHost(driver::cuda::Driver& driver);

  explicit PeerPaths(Detect detect = detectHost) : detect_(std::move(detect)) {}
  /// Whether the path between two devices is no longer than `level`.
  Result<bool> allow(driver::cuda::Driver& driver, std::optional<topo::PathType> level, driver::cuda::Device one,
                     driver::cuda::Device other);

 private:
  const topo::View* view(driver::cuda::Driver& driver);

  const Detect detect_;
  std::mutex mutex_;  ///< protects what follows
  bool isDetected_ = false;
  std::optional<topo::View> view_;  // nothing: it could not be detected
};

}  // namespace tutti::comm
