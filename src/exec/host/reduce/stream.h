// Copies line by line: what copyBytes, copyClaimed and the tiled reductions are made of. Any thread.
#pragma once

#include <cstddef>

namespace tutti::exec::host {

/// memcpy with non-temporal stores, where the processor has them. Its stores are ordered with later ones only by fenceStreams.
void streamBytes(void* dst, const void* src, size_t bytes);

/// copyClaimed() on any processor: all lines of the source but those of its first 512 bytes are claimed, and none behind it.
void claimBytes(void* dst, const void* src, size_t bytes, bool nonTemporal);

/// Makes all streamBytes of this thread visible before its later stores.
void fenceStreams();

}  // namespace tutti::exec::host
