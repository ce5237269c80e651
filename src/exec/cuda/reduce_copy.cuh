// The one data loop of all pipe steps: read what a step takes, combine it in the stated order, write what it gives; one pass.
//
// Run by all worker threads of a lane together. Which operands exist is known at compile time once the algorithm is inlined
// (a ring has one of each); a tree's up to three children are loops whose bounds are uniform over the thread block.
// 1. Order of combination: the own contribution, then the received ones as listed.
// 2. Every element is read and written by the same thread, so source and destination may be the same memory.
#pragma once

#include <cstddef>

#include "algo/step.h"
#include "exec/cuda/arch/memory.cuh"
#include "exec/cuda/element.cuh"
#include "exec/cuda/pipe.h"

namespace tutti::exec::cuda {

/// Addresses of one step on one slice. The flags and counts say which operands there are; they fold at compile time where the
/// algorithm states them as constants, which pointers never do.
struct Operands {
  const std::byte* own;
  std::byte* out;
  const std::byte* recv[kMostFan];
  std::byte* send[kMostFan];
  bool hasOwn;
  bool hasOut;
  int32_t recvs;
  int32_t sends;
};

template <class Reduction, int kWorkers, int kUnroll>
struct ReduceCopy {
  using Words2 = arch::Words2;
  using Storage = typename Reduction::Storage;

  static __device__ __forceinline__ void run(const Operands& o, uint64_t elems, int worker) {
    uint64_t done = 0;
    if (isAligned(o)) {
      const uint64_t vectors = elems * sizeof(Storage) / sizeof(Words2);
      constexpr uint64_t kHunk = static_cast<uint64_t>(kWorkers) * kUnroll;
      const uint64_t hunks = vectors / kHunk * kHunk;
      for (uint64_t v = worker; v < hunks; v += kHunk) vectorPass<kUnroll>(o, v);
      for (uint64_t v = hunks + worker; v < vectors; v += kWorkers) vectorPass<1>(o, v);
      done = vectors * (sizeof(Words2) / sizeof(Storage));
    }
    for (uint64_t e = done + worker; e < elems; e += kWorkers) elementPass(o, e);
  }

 private:
  /// Slots are always aligned; the caller's buffers need only be aligned to their element.
  static __device__ __forceinline__ bool isAligned(const Operands& o) {
    const uintptr_t own = o.hasOwn ? reinterpret_cast<uintptr_t>(o.own) : 0;
    const uintptr_t out = o.hasOut ? reinterpret_cast<uintptr_t>(o.out) : 0;
    return (own | out) % sizeof(Words2) == 0;
  }

  /// A single source is moved bit for bit; several are accumulated and rounded once.
  static __device__ __forceinline__ bool isMove(const Operands& o) { return (o.hasOwn ? 1 : 0) + o.recvs == 1; }

  /// `kCount` vectors of 16 bytes, kWorkers apart: all loads first, so that they overlap.
  template <int kCount>
  static __device__ __forceinline__ void vectorPass(const Operands& o, uint64_t first) {
    Words2 value[kCount];
    load<kCount>(value, o.hasOwn ? o.own : o.recv[0], first);
    if (!isMove(o)) reduce<kCount>(value, o, first);
    if (o.hasOut) store<kCount>(value, o.out, first);
#pragma unroll
    for (int s = 0; s < kMostFan; ++s) {
      if (s >= o.sends) break;
      store<kCount>(value, o.send[s], first);
    }
  }
  template <int kCount>
  static __device__ __forceinline__ void reduce(Words2 (&value)[kCount], const Operands& o, uint64_t first) {
    Words2 received[kCount];
    load<kCount>(received, o.recv[0], first);
    Reduction sum[kCount][2];
#pragma unroll
    for (int i = 0; i < kCount * 2; ++i) {
      sum[i / 2][i % 2].begin(value[i / 2].word[i % 2]);
      sum[i / 2][i % 2].add(received[i / 2].word[i % 2]);
    }
#pragma unroll
    for (int r = 1; r < kMostFan; ++r) {
      if (r >= o.recvs) break;
      load<kCount>(received, o.recv[r], first);
#pragma unroll
      for (int i = 0; i < kCount * 2; ++i) sum[i / 2][i % 2].add(received[i / 2].word[i % 2]);
    }
#pragma unroll
    for (int i = 0; i < kCount * 2; ++i) value[i / 2].word[i % 2] = sum[i / 2][i % 2].word();
  }
  template <int kCount>
  static __device__ __forceinline__ void load(Words2 (&to)[kCount], const std::byte* from, uint64_t first) {
    const Words2* p = reinterpret_cast<const Words2*>(from) + first;
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = arch::loadWeak(p + i * kWorkers);
  }
  template <int kCount>
  static __device__ __forceinline__ void store(const Words2 (&from)[kCount], std::byte* to, uint64_t first) {
    Words2* p = reinterpret_cast<Words2*>(to) + first;
#pragma unroll
    for (int i = 0; i < kCount; ++i) arch::storeWeak(p + i * kWorkers, from[i]);
  }

  /// One element, for tails and for buffers that are not aligned to 16 bytes.
  static __device__ __forceinline__ void elementPass(const Operands& o, uint64_t e) {
    const auto at = [e](const std::byte* p) { return static_cast<uint64_t>(reinterpret_cast<const Storage*>(p)[e]); };
    uint64_t value = at(o.hasOwn ? o.own : o.recv[0]);
    if (!isMove(o)) {
      Reduction sum;
      sum.begin(value);
#pragma unroll
      for (int r = 0; r < kMostFan; ++r) {
        if (r < o.recvs) sum.add(at(o.recv[r]));
      }
      value = sum.word();
    }
    const auto stored = static_cast<Storage>(value);
    if (o.hasOut) reinterpret_cast<Storage*>(o.out)[e] = stored;
#pragma unroll
    for (int s = 0; s < kMostFan; ++s) {
      if (s < o.sends) reinterpret_cast<Storage*>(o.send[s])[e] = stored;
    }
  }
};

}  // namespace tutti::exec::cuda
