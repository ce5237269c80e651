// From the shape of a call to a plan that devices can run: choose algorithm, kernel and channels, record, divide, pack.
//
// Owner: the communicator. Called by the thread that uses the communicator; not thread-safe. Touches no device and opens nothing.
// 1. What is chosen depends on layout, settings and shape alone, never on the rank: whether a program fits is asked for all ranks.
// 2. Messages: `root` is the peer. A rank runs one of two lanes; kernel, channels and slices depend on the message's bytes, so that both
//    sides agree. To itself a sending message is a copy and a receiving one has no steps.
// 3. Only a message has a slice where there is nothing to move: every other call of no elements has geometry.slices == 0 and needs no
// launch.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "connect/layout.h"
#include "plan/device_plan.h"
#include "plan/planner.h"

namespace tutti::plan {

class DevicePlanner {
 public:
  /// `layout` outlives the planner.
  DevicePlanner(const connect::Layout& layout, Rank rank, const DeviceSettings& settings);

  /// InvalidUsage, with what forbids it and what there is, when nothing is left.
  Result<std::shared_ptr<DevicePlan>> makePlan(const Shape& shape);
  /// What makePlan() would choose.
  Result<Summary> summarize(const Shape& shape);
  const DeviceSettings& settings() const { return settings_; }

 private:
  struct Draft;
  struct Option;
  Result<std::vector<Option>> options(const Shape& shape);
  Status checkFit(const exec::record::Algorithm& algorithm, exec::cuda::KernelId kernel, Rank root);
  Result<Draft> draft(const Shape& shape);

  const connect::Layout& layout_;
  Rank rank_;
  DeviceSettings settings_;
  tune::DeviceModel model_;
  /// Whether programs fit on all ranks, by algorithm, whether they are the Window kernel's, and root.
  std::map<std::tuple<const exec::record::Algorithm*, bool, int32_t>, Status> fits_;
};

}  // namespace tutti::plan
