// GPUs that are not there: what the model has a call of so many of them run.
//
// Pure but for the environment, which comm::readSettings reads; any thread.
#pragma once

#include <functional>
#include <vector>

#include "comm/config.h"
#include "plan/device_planner.h"

namespace tutti::tool {

struct ModelledCall {
  plan::Summary summary;
  std::string constants;  ///< Whose numbers the model takes.
};

/// Rank 0 of `gpus` on one host, each like those that the built-in constants were measured on. `adjust` changes the settings that the
/// environment and `config` make; `rejected`, when given, gets the other algorithms.
Result<ModelledCall> planModelled(int32_t gpus, const comm::Config& config, const plan::Shape& shape,
                                  const std::function<void(plan::DeviceSettings&)>& adjust = {},
                                  std::vector<plan::Rejected>* rejected = nullptr);

}  // namespace tutti::tool
