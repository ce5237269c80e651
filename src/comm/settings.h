// The checks and settings of a communicator that are pure functions: of the environment, or of a call's arguments.
#pragma once

#include "comm/communicator.h"
#include "tune/plugin/tuner.h"

namespace tutti::comm {

/// From the environment and the configuration. InvalidUsage when NCCL_ALGO or TUTTI_ALGO hold an unknown name, or when bounds of channels
/// in the environment contradict each other. `measured`: constants of the machine, where all ranks have the same; null: the built-in ones.
Result<plan::Settings> readSettings(const Config& config, const tune::Platform* measured = nullptr);
/// What the planner of a communicator of GPUs is told: what `host` settings mean there too, and what GPUs and ranks have agreed on.
Result<plan::DeviceSettings> readDeviceSettings(const plan::Settings& host, const Config& config, const Place& place,
                                                const exec::cuda::KernelUses& uses, const tune::Platform* measured = nullptr);
/// NCCL_TUNER_PLUGIN's tuner for a communicator; null when there is none.
std::shared_ptr<tune::Tuner> openTuner(tune::plugin::Libraries& libraries, const tune::plugin::Communicator& communicator);
/// Tries before a waiting thread gives its core away.
int32_t readSpins();
/// Whether a wait looks at who needs the core that it holds: a rank that shares its cores does, unless TUTTI_SPIN says how long it waits.
bool readCrowded(bool sharesCores);
/// TUTTI_CMA: whether this rank would have processes of a host copy large values out of each other's memory. They do if all would.
bool wantsCopies();
/// TUTTI_PAST_CACHE_BYTES; 0: automatic.
uint64_t readPastCacheBytes();
/// The part of the last-level caches that one of `hostRanks` ranks has, which can use `caches` of `cacheBytes` (0: not known) together.
uint64_t cacheShareOf(uint64_t cacheBytes, int32_t caches, int32_t hostRanks);
int64_t readFlightEvents();
/// TUTTI_TIMEOUT_MS, TUTTI_WARN_MS and TUTTI_CHECKS.
void readWaitLimits(exec::host::Turn& turn);

bool hasRootOrPeer(Collective collective);

/// Root or peer, type, and that the buffers can exist at all. InvalidArgument, naming argument, value and what is allowed.
Status checkArguments(const CallRequest& request, int32_t ranks);
/// Bytes of the buffers that a call names, as large as any rank's part of it.
struct BufferBytes {
  uint64_t in = 0;
  uint64_t out = 0;
};
BufferBytes bufferBytes(const CallRequest& request, int32_t ranks);

/// That no buffer that this rank's part of the call touches is NULL.
Status checkBuffers(const CallRequest& request, Rank rank);

}  // namespace tutti::comm
