// Random calls on one library until the time is up: sizes, operations, types, operators, roots, communicators, streams, groups, graphs and
// eager calls mixed, and a rank that is late. Every element of every result is compared.
//
// Owner: a rank's process, one thread. All ranks draw the same numbers from (seed, step).
// 1. A step puts several calls onto the device before it waits. They share one communicator, whose calls may be on several streams; with
//    `isMixed` they are on several communicators, which some libraries do not allow.
// 2. The first wrong element ends the run and is told with seed and step; of a hang the parent tells the step of each rank (world.h).
#pragma once

#include "gpu/options.h"

namespace tutti::bench::gpu {

/// The program's exit code.
int runTorture(World& world, const BenchOptions& options);

}  // namespace tutti::bench::gpu
