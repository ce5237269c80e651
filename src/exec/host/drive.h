// Runs works to their end on the calling thread, all of them interleaved.
#pragma once

#include <memory>
#include <span>

#include "core/status.h"
#include "exec/host/work.h"

namespace tutti::exec::host {

/// Returns when every work has finished or failed; the first error, in the order given. `spins` as for Waiter. `isTried`: all of them have
/// been advanced as far as they go just now, and none has finished.
Status drive(std::span<Work* const> works, int32_t spins, bool isTried = false);
Status drive(std::span<const std::unique_ptr<Work>> works, int32_t spins);

}  // namespace tutti::exec::host
