// ncclConfig_t and ncclSimInfo_t as callers of any version pass them. Pure functions but for the environment.
#pragma once

#include "comm/communicator.h"
#include "nccl.h"

namespace tutti::api {

/// The options that `config` and the environment ask for; without a config those of `inherited`, or the defaults. InvalidArgument for a
/// struct that was not made by NCCL_CONFIG_INITIALIZER or a value out of range; InvalidUsage for options that are not built yet.
Result<comm::Config> readConfig(const ncclConfig_t* config, const comm::Config* inherited = nullptr);

}  // namespace tutti::api
