// How far pages of a GPU's memory are from its multiprocessors, and what that costs a flag that a peer writes.
#pragma once

#include <cuda_runtime.h>

#include <array>

namespace tutti::limits {

/// Prints two tables: for pages of 4 KiB in a row, the cycles of an atomic from the first multiprocessor that a grid gets; and nanoseconds
/// of a flag to the peer and back, with flags on near and far pages. Peer access must be enabled.
void printPages(const std::array<int, 2>& devices);

}  // namespace tutti::limits
