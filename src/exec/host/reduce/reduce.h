// What the host executor computes with: element-wise folds of contributions, and copies, in the numerics of core/element.h.
// Stateless: any thread, any number at once. Choose a ReduceFn when a plan is made, call it per slice.
//
// 1. Every level gives the bits of element.h's scalar definition; the level only changes the speed.
// 2. The caller's rounding mode and flush-to-zero settings do not matter: calls on floats run in the default environment.
// 3. No call allocates, locks or enters the system.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types.h"

namespace tutti::exec::host {

/// dst[i] = finish( round( sources[0][i] (op) sources[1][i] (op) … ) ), i < elems; finish divides by the scaling's divisor.
/// Bit k of `scaledSources` says that source k is raw: it is multiplied by the scaling's factor and rounded to the element
/// type first (ignored unless hasFactor; only the first 32 sources can be raw).
/// numSources >= 1; a lone source that is neither scaled nor divided is moved bit for bit.
/// dst may be one of the sources (the same address), but must not overlap one otherwise. Any alignment.
using ReduceFn = void (*)(void* dst, const void* const* sources, int numSources, size_t elems, const Reduction& reduction,
                          uint32_t scaledSources, bool finish);

enum class SimdLevel : uint8_t { Portable, Sse4, Avx2, Avx512 };
inline constexpr int kNumSimdLevels = 4;

const char* name(SimdLevel level);

/// The best level that this build contains and this processor has.
SimdLevel detectSimd();

/// Whether this build contains `level` and this processor has it.
bool isSupported(SimdLevel level);

/// The function for reductions of `type` and `op`; only that type and op may be in the Reduction passed to it.
/// `level` must be supported. With `nonTemporal`, results go past the cache: for outputs larger than it that are not read soon.
ReduceFn selectReduce(DataType type, ReduceOp op, SimdLevel level, bool nonTemporal = false);

/// memcpy; with `nonTemporal` and enough bytes, stores go past the cache and are fenced before the return.
/// dst and src are equal or do not overlap.
void copyBytes(void* dst, const void* src, size_t bytes, bool nonTemporal);

/// copyBytes() of what another core wrote through its cache, and is to write again when it has been read. Where that makes those writes
/// faster, lines are brought here for writing (all but the first few), so that one cache at a time has them.
void copyClaimed(void* dst, const void* src, size_t bytes, bool nonTemporal);

}  // namespace tutti::exec::host
