// The seam inside this folder: what one instruction-set level provides for one type and operation. Included by files that are
// compiled for different processors, so it holds plain declarations only: no inline function, no template, no std type,
// because the linker would keep one copy for all of them and might keep the one that this processor cannot run.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/types.h"

namespace tutti::exec::host {

/// dst[i] = round(fold over k of sources[k][first + i]), i < elems. dst is not offset by `first`.
/// Bit k of `scaledSources` marks a source to be multiplied by `factor` (one element, low bytes first) and rounded.
struct FoldArgs {
  void* dst;
  const void* const* sources;
  int numSources;
  size_t first;
  size_t elems;
  uint64_t factor;
  uint32_t scaledSources;
};

using FoldFn = void (*)(const FoldArgs& args);

/// `two` and `three` take exactly so many unscaled sources; `any` takes whatever FoldArgs can say.
struct FoldKernels {
  FoldFn two;
  FoldFn three;
  FoldFn any;
};

inline constexpr size_t kFewElems = 8;

/// One table of all types and operations a level, indexed by the values of DataType and ReduceOp.
struct FoldTable {
  FoldKernels at[kNumDataTypes][kNumReduceOps];
};

const FoldTable& portableFolds();
/// For calls of at most kFewElems elements, whatever the processor.
const FoldTable& fewFolds();
const FoldTable& sse4Folds();
const FoldTable& avx2Folds();
const FoldTable& avx512Folds();

/// Divides `elems` integers of `type` in place by `divisor` >= 2, truncating towards zero.
void divideInPlace(void* data, size_t elems, DataType type, int32_t divisor);

}  // namespace tutti::exec::host
