#include "exec/host/reduce/reduce.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "exec/host/reduce/float_environment.h"
#include "exec/host/reduce/kernels.h"
#include "exec/host/reduce/stream.h"

namespace tutti::exec::host {
namespace {

// A tile of results lies in the first-level cache beside the tiles of its sources until it is divided or streamed out.
constexpr size_t kTileBytes = 4096;
constexpr size_t kCacheLine = 64;

/// Results that need another pass, or must not enter the cache, are made tile by tile in a buffer of their own.
void foldTiled(FoldFn fold, FoldArgs args, DataType type, int32_t divisor, bool nonTemporal) {
  alignas(kCacheLine) char tile[kTileBytes];
  const size_t elemBytes = sizeOf(type);
  auto* out = static_cast<char*>(args.dst);
  const size_t total = args.elems;
  args.dst = tile;
  // A shorter first tile lets all others start on a cache line, which streaming stores then write whole.
  size_t limit = (kTileBytes - reinterpret_cast<uintptr_t>(out) % kCacheLine) / elemBytes;
  for (size_t done = 0; done < total; done += args.elems) {
    args.first = done;
    args.elems = std::min(limit, total - done);
    limit = kTileBytes / elemBytes;
    fold(args);
    if (divisor > 1) divideInPlace(tile, args.elems, type, divisor);
    const size_t bytes = args.elems * elemBytes;
    if (nonTemporal) {
      streamBytes(out, tile, bytes);
    } else {
      __builtin_memcpy(out, tile, bytes);
    }
    out += bytes;
  }
  if (nonTemporal) fenceStreams();
}

FoldFn choose(const FoldKernels& kernels, int numSources, uint32_t scaledSources) {
  if (scaledSources == 0 && numSources == 2) return kernels.two;
  if (scaledSources == 0 && numSources == 3) return kernels.three;
  return kernels.any;
}

/// Everything that does not depend on the combination at compile time. Not inlined: it would be copied hundreds of times.
[[gnu::noinline]] void runReduction(const FoldKernels& kernels, DataType type, bool nonTemporal, FoldArgs args,
                                    const Scaling& scaling, bool finish) {
  const uint32_t present = args.numSources < 32 ? (1u << args.numSources) - 1 : ~0u;
  args.scaledSources = scaling.hasFactor ? args.scaledSources & present : 0;
  const int32_t divisor = isInteger(type) && finish ? scaling.divisor : 1;
  if (args.numSources == 1 && args.scaledSources == 0 && divisor == 1) {
    copyBytes(args.dst, args.sources[0], args.elems * sizeOf(type), nonTemporal);
    return;
  }
  const FoldFn fold = choose(kernels, args.numSources, args.scaledSources);
  const bool isTiled = divisor > 1 || (nonTemporal && args.elems * sizeOf(type) >= kTileBytes);
  if (isInteger(type)) {
    isTiled ? foldTiled(fold, args, type, divisor, nonTemporal) : fold(args);
  } else {
    const DefaultFloatEnvironment environment;
    isTiled ? foldTiled(fold, args, type, divisor, nonTemporal) : fold(args);
  }
}

const FoldTable& tableOf(SimdLevel level) {
#if TUTTI_SIMD_X86
  switch (level) {
    case SimdLevel::Sse4: return sse4Folds();
    case SimdLevel::Avx2: return avx2Folds();
    case SimdLevel::Avx512: return avx512Folds();
    case SimdLevel::Portable: break;
  }
#endif
  static_cast<void>(level);
  return portableFolds();
}

/// A ReduceFn carries no state, so each combination is a function of its own: a few instructions before runReduction.
template <SimdLevel level, DataType type, ReduceOp op, bool nonTemporal>
void reduceWith(void* dst, const void* const* sources, int numSources, size_t elems, const Reduction& reduction,
                uint32_t scaledSources, bool finish) {
  const FoldArgs args{.dst = dst, .sources = sources, .numSources = numSources, .first = 0, .elems = elems,
                      .factor = reduction.scaling.factor, .scaledSources = scaledSources};
  const FoldKernels& kernels = (elems <= kFewElems ? fewFolds() : tableOf(level)).at[static_cast<int>(type)][static_cast<int>(op)];
  runReduction(kernels, type, nonTemporal, args, reduction.scaling, finish);
}

struct ReduceTable {
  ReduceFn at[kNumSimdLevels][2][kNumDataTypes][kNumReduceOps];
};

template <int kIndex>
constexpr ReduceFn entryOf() {
  constexpr auto op = static_cast<ReduceOp>(kIndex % kNumReduceOps);
  constexpr auto type = static_cast<DataType>(kIndex / kNumReduceOps % kNumDataTypes);
  constexpr bool nonTemporal = kIndex / (kNumReduceOps * kNumDataTypes) % 2 == 1;
  constexpr auto level = static_cast<SimdLevel>(kIndex / (kNumReduceOps * kNumDataTypes * 2));
  return &reduceWith<level, type, op, nonTemporal>;
}

template <int... kIndices>
constexpr ReduceTable makeTable(std::integer_sequence<int, kIndices...>) {
  ReduceTable table{};
  ((table.at[kIndices / (kNumReduceOps * kNumDataTypes * 2)][kIndices / (kNumReduceOps * kNumDataTypes) % 2]
            [kIndices / kNumReduceOps % kNumDataTypes][kIndices % kNumReduceOps] = entryOf<kIndices>()), ...);
  return table;
}

constexpr ReduceTable kReduceTable =
    makeTable(std::make_integer_sequence<int, kNumSimdLevels * 2 * kNumDataTypes * kNumReduceOps>());

}  // namespace

const char* name(SimdLevel level) {
  switch (level) {
    case SimdLevel::Portable: return "portable";
    case SimdLevel::Sse4: return "sse4";
    case SimdLevel::Avx2: return "avx2";
    case SimdLevel::Avx512: return "avx512";
  }
  return "?";
}

bool isSupported(SimdLevel level) {
  switch (level) {
    case SimdLevel::Portable: return true;
#if TUTTI_SIMD_X86
    // The levels of the x86-64 psABI, operating system support included: the files of each level use all of theirs.
    case SimdLevel::Sse4: return __builtin_cpu_supports("x86-64-v2");
    case SimdLevel::Avx2: return __builtin_cpu_supports("x86-64-v3");
    case SimdLevel::Avx512: return __builtin_cpu_supports("x86-64-v4");
#else
    case SimdLevel::Sse4: case SimdLevel::Avx2: case SimdLevel::Avx512: return false;
#endif
  }
  return false;
}

SimdLevel detectSimd() {
  for (const SimdLevel level : {SimdLevel::Avx512, SimdLevel::Avx2, SimdLevel::Sse4}) {
    if (isSupported(level)) return level;
  }
  return SimdLevel::Portable;
}

ReduceFn selectReduce(DataType type, ReduceOp op, SimdLevel level, bool nonTemporal) {
  return kReduceTable.at[static_cast<int>(level)][nonTemporal ? 1 : 0][static_cast<int>(type)][static_cast<int>(op)];
}

}  // namespace tutti::exec::host
