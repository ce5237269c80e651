// The list of kernels: each kernel file gives one entry. Immutable; any thread. Knows no CUDA header and, because nvcc reads it, nothing of
// core/status.h.
#pragma once

#include <cstdint>
#include <utility>

#include "exec/cuda/loops.h"
#include "exec/cuda/pipe.h"

namespace tutti::exec::cuda {

struct BlockSize {
  int32_t threads;
  int32_t sharedBytes;  ///< dynamic shared memory
};

/// A kernel is compiled once for each type that has loops of its own.
struct KernelEntry {
  BlockSize block;
  const void* function[kNumLoopTypes];  ///< by place in kLoopTypes
};

template <class FunctionOf, int... kPlace>
KernelEntry makeEntry(const BlockSize& block, FunctionOf functionOf, std::integer_sequence<int, kPlace...>) {
  return {block, {functionOf.template operator()<kLoopTypes[kPlace]>()...}};
}
/// `functionOf.operator()<type>()` gives the kernel of a type.
template <class FunctionOf>
KernelEntry makeEntry(const BlockSize& block, FunctionOf functionOf) {
  return makeEntry(block, functionOf, std::make_integer_sequence<int, kNumLoopTypes>{});
}

const KernelEntry& windowEntry();
const KernelEntry& cellsEntry();
const KernelEntry& linesEntry();
const KernelEntry& simpleEntry();
const KernelEntry& bulkEntry();

/// Kernels of lone calls (lone.h): those that combine, and the ones that move: whatever it is, and, unless null, what isInHalves (brief.h).
struct LoneEntry {
  const char* name;
  const KernelEntry& combine;
  const void* move;
  const void* moveHalves = nullptr;
};
LoneEntry loneCellsEntry();
LoneEntry loneLinesEntry();
/// Of brief ones (brief.h); `isPair`: of two ranks.
LoneEntry briefCellsEntry(bool isPair);
LoneEntry briefLinesEntry(bool isPair);
/// The kernels of launches of a few messages over pipes of cells and of lines (lone_message.h).
const void* loneMessages();
const void* loneLineMessages();

/// The kernel of copies.h, both its stages; one block.
const void* copiesFunction();

/// Those of moved.h: of one block, and of several.
const void* movedFunction();
const void* movedTogetherFunction();
inline constexpr int kMovedThreads = 256;
inline constexpr int kMovedTogetherThreads = 768;

/// Those of mapped.h, which combine. Types differ in threads: mappedThreads(); the entry has the most.
const KernelEntry& mappedEntry();

/// The kernel of probe.h; a block for each pair.
const void* probeFunction();

/// The kernel of near_pages.h; a block for each channel.
const void* nearPagesFunction();
inline constexpr int kNearPagesThreads = 256;  ///< a warp for each writer

}  // namespace tutti::exec::cuda
