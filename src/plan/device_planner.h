// From the shape of a call to a plan that devices can run: choose algorithm, kernel and channels, record, divide, pack.
//
// Owner: the communicator. Called by the thread that uses the communicator; not thread-safe. Touches no device and opens nothing.
// 1. What is chosen depends on layout, settings and shape alone, never on the rank: whether a program fits is asked for all ranks.
// 2. Messages: `root` is the peer. A rank runs one of two lanes; kernel, channels and slices depend on the message's bytes, so that both
//    sides agree. To itself a sending message is a copy and a receiving one has no steps.
// 3. Only a message has a slice where there is nothing to move: every other call of no elements has geometry.slices == 0 and needs no
// launch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "connect/layout.h"
#include "plan/device_fit.h"
#include "plan/device_plan.h"
#include "plan/planner.h"

namespace tutti::plan {

class DevicePlanner {
 public:
  /// `layout` outlives the planner.
  DevicePlanner(const connect::Layout& layout, Rank rank, const DeviceSettings& settings);

  /// InvalidUsage, with what forbids it and what there is, when nothing is left. The user's bounds on blocks never forbid a call.
  Result<std::shared_ptr<DevicePlan>> makePlan(const Shape& shape);
  /// What makePlan() would choose. `rejected`, unless null, gets all else, and why.
  Result<Summary> summarize(const Shape& shape, std::vector<Rejected>* rejected = nullptr);
  /// How long that would take, without the rest.
  Result<double> estimateUs(const Shape& shape);
  /// Lines of 128 bytes do not arrive in order between all ranks after all; before the first plan, on all ranks.
  void avoidLines() { settings_.hasLines = false; }
  const DeviceSettings& settings() const { return settings_; }
  /// Other constants for what is planned from now on, for who fits them; what algorithms need is not looked up again.
  void use(const tune::DeviceMachine& machine) {
    settings_.machine = machine;
    model_.use(machine);
  }

 private:
  struct Option;
  struct Draft;
  enum class Obstacle : uint8_t;
  struct Hindrance;

  Result<std::vector<Option>> options(const Shape& shape, std::vector<Rejected>* rejected);
  static Rejected rejection(const Option& option, std::string reason);
  std::string why(const Hindrance& hindrance, const Shape& shape);
  Obstacle examine(Option& option, const Shape& shape);
  Status explain(const Hindrance& hindrance, const std::vector<const exec::record::Algorithm*>& allowed, const Shape& shape);
  bool isOnDevice(exec::cuda::KernelId kernel) const;
  Draft divide(const Option& option, const Shape& shape, int32_t channels, uint64_t slotParts);
  uint8_t portOf(uint8_t port, exec::cuda::Protocol protocol, Collective collective) const;
  std::vector<exec::record::Program> programsOf(const Option& option, const Shape& shape) const;
  std::vector<int32_t> channelsToTry(const Option& option, const Shape& shape) const;
  Draft withBlocks(const Draft& draft, const Shape& shape, int32_t blocks);
  Result<Draft> draft(const Shape& shape, std::vector<Rejected>* rejected);

  const connect::Layout& layout_;
  Rank rank_;
  DeviceSettings settings_;
  tune::DeviceModel model_;
  tune::Adviser adviser_;
  DeviceFits fits_;
};

}  // namespace tutti::plan
