// ncclConfig_t and ncclSimInfo_t as callers of any version pass them. Pure functions but for the environment.
#pragma once

#include "comm/communicator.h"
#include "nccl.h"

namespace tutti::api {

/// The options that `config` (may be NULL) and the environment ask for. InvalidArgument for a struct that was not made by
/// NCCL_CONFIG_INITIALIZER or a value out of range; InvalidUsage for options that are not built yet.
Result<comm::Config> readConfig(const ncclConfig_t* config);

}  // namespace tutti::api
