// GPUs that are not there: what the model has a call of so many of them run.
//
// Owner: whoever asks; one thread. Opens nothing; the environment is read once, when they are made (comm::readSettings).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/config.h"
#include "plan/device_planner.h"

namespace tutti::tool {

struct ModelledCall {
  plan::Summary summary;
  std::string constants;  ///< Whose numbers the model takes.
};

class ModelledGpus {
 public:
  /// Rank 0 of `gpus` on one host, each like those that the constants were measured on: `measured`, where it knows of GPUs, or else the
  /// built-in ones. `adjust` changes the settings that the environment and `config` make. Error: what these say makes no sense.
  static Result<std::unique_ptr<ModelledGpus>> make(int32_t gpus, const comm::Config& config,
                                                    const std::function<void(plan::DeviceSettings&)>& adjust = {},
                                                    const tune::Platform* measured = nullptr);

  /// `rejected`, when given, gets the other algorithms.
  Result<ModelledCall> plan(const plan::Shape& shape, std::vector<plan::Rejected>* rejected = nullptr);
  Result<double> estimateUs(const plan::Shape& shape) { return planner_.estimateUs(shape); }
  /// Other constants from now on: thousands of times faster than making them anew, for who fits constants.
  void use(const tune::DeviceMachine& machine) { planner_.use(machine); }

 private:
  ModelledGpus(int32_t gpus, const plan::DeviceSettings& settings)
      : layout_(connect::Layout::natural(gpus)), planner_(layout_, Rank(0), settings) {}

  connect::Layout layout_;
  plan::DevicePlanner planner_;
};

}  // namespace tutti::tool
