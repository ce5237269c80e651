// Stores that go past the cache, in pieces: the part of copyBytes that the tiled reductions share. Any thread.
#pragma once

#include <cstddef>

namespace tutti::exec::host {

/// memcpy with non-temporal stores, where the processor has them. Its stores are ordered with later ones only by fenceStreams.
void streamBytes(void* dst, const void* src, size_t bytes);

/// Makes all streamBytes of this thread visible before its later stores.
void fenceStreams();

}  // namespace tutti::exec::host
