// How long the slots of a host plan's pipes are, and what its calls have in caches: constants that were measured, each beside its command.
//
// Pure functions of a call's shape, the same on all ranks of a communicator.
#pragma once

#include <cstdint>

#include "connect/connections.h"
#include "core/types.h"

namespace tutti::plan {

/// From here on no cache keeps a call's buffers that is as well shared by its ranks: `bench_mpi all_reduce --buffers ncclmem` on a Xeon
/// with 300 MiB, where 16 MiB take longer past it.
inline constexpr uint64_t kPastAnyCache = 32 << 20;

/// Ports of pipes that plans have beside those of the algorithms' own ports, to which these are added: fine ones, and those that fan out,
/// which carry nothing else.
inline constexpr uint8_t kFinePorts = 64;
inline constexpr uint8_t kFanPorts = 96;

/// Whether system calls copy so many bytes faster, where calls pay at all, than copies through shared memory do (`bench/peers/run`). The
/// kernel does not store past the cache. There it takes up to 1.25 times as long where each core has to read and to write, or a broadcast's
/// slots are short, but half of the time in a scatter, whose root would write for all (Xeon, 32 and 64 MiB).
bool copiesFaster(Collective collective, uint64_t bytes);

/// What a broadcast between processes travels through, beside the pipes of other calls: slots short enough that the writer fills one while
/// the reader empties another, and together so long that what is written again has left the reader's second cache. That is 2 MiB if nothing
/// else was asked for. Measured with `bench_mpi broadcast --from 32K --to 1M`.
connect::PipeSize fine(const connect::PipeSize& pipe);

/// Messages between processes of a host that no system call copies: as much as the other pipes hold by default, in shorter slots, so that a
/// rank's writing and its reading take turns while both are in its second cache. Not where ranks share cores, which then take turns more
/// often. Fewer of them between many ranks. `bench_mpi alltoall --from 256K --to 16M`, of 2 to 32 ranks.
connect::PipeSize shorter(const connect::PipeSize& pipe, int32_t ranks);

/// Whether so many bytes are better written for all ranks at once than passed on from rank to rank, where others could begin the next call
/// meanwhile: of little, most of the time goes into telling each reader. `bench_mpi broadcast --from 8` of 3 to 32 ranks on 32 cores, and
/// of 4 and 8 on two.
bool isWorthFanning(uint64_t bytes, int32_t ranks, int32_t cores);

/// What the buffers of a rank have together, on an average, in bytes, of a broadcast in place; `bytes` are those of the larger one.
uint64_t footprint(Collective collective, uint64_t bytes, uint64_t ranks);

}  // namespace tutti::plan
