// The folds for x86-64-v3, compiled with that -march; reached only where the processor has it.
#include "exec/host/reduce/simd_fold.h"

static_assert(HWY_TARGET == HWY_AVX2, "the flags of this file no longer give the level it is for");

namespace tutti::exec::host {

const FoldTable& avx2Folds() { return kFolds; }

}  // namespace tutti::exec::host
