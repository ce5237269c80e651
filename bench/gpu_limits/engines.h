// What copy engines take to the peer and beside other copies, and which copies are not theirs.
#pragma once

#include "machine.cuh"

namespace tutti::limits {

/// Prints two tables: copies of 16 MiB while blocks hold all multiprocessors, eager and in graphs; and microseconds of copies in graphs,
/// from 4 KiB up to the bytes of the settings, both GPUs at once.
void printEngines(Machine& machine);

}  // namespace tutti::limits
