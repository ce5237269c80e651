// The kernel of a few messages (message_block.cuh) over pipes of lines: 128 bytes hold 120 of data, written by 8 threads in one go.
//
// 1. Part p of line l belongs to thread (8 l + p) % blockDim.x; the last part has 8 bytes of data and the flag, which never comes again.
// 2. Lines are complete or not as a whole, so all threads of a warp wait together.
#include "exec/cuda/message_block.cuh"

namespace tutti::exec::cuda {
namespace {

constexpr int kLinesAtOnce = 4;  ///< that a thread has a part in, loaded before the first is needed

class LineMessage : public MessageBlock<LineMessage, Protocol::Lines> {
  using Base = MessageBlock<LineMessage, Protocol::Lines>;
  friend Base;
  using Words2 = arch::Words2;
  using Values = Words2[kLinesAtOnce];

 public:
  static constexpr Protocol kProtocol = Protocol::Lines;
  using Base::Base;

 private:
  static constexpr uint32_t kPartsOfLine = kLineBytes / sizeof(Words2);
  static constexpr uint32_t kLinesOfWarp = 32 / kPartsOfLine;

  static __device__ __forceinline__ uint32_t part() { return threadIdx.x % kPartsOfLine; }
  static __device__ __forceinline__ bool isFlag() { return part() == kPartsOfLine - 1; }
  static __device__ __forceinline__ uint32_t linesOf(uint32_t bytes) {
    return (max(bytes, 1u) + static_cast<uint32_t>(kLineDataBytes) - 1) / static_cast<uint32_t>(kLineDataBytes);
  }
  static __device__ __forceinline__ uint32_t stride() { return blockDim.x / kPartsOfLine; }
  /// The thread's i-th line of a batch whose first line, for its warp, is `first`.
  static __device__ __forceinline__ uint32_t lineOf(uint32_t first, int i) {
    return first + threadIdx.x % 32 / kPartsOfLine + static_cast<uint32_t>(i) * stride();
  }
  static __device__ __forceinline__ uint32_t placeOf(uint32_t line) {
    return line * static_cast<uint32_t>(kLineDataBytes) + part() * static_cast<uint32_t>(sizeof(Words2));
  }
  /// Calls `body(first, isWhole)` as often for all threads of a warp. `isWhole`: all lines of its batch are whole, and words at `memory`
  /// are aligned.
  template <class Body>
  static __device__ __forceinline__ void forEachBatch(const std::byte* memory, uint32_t bytes, Body&& body) {
    const uint32_t lines = linesOf(bytes);
    const uint32_t wholeLines =
        reinterpret_cast<uintptr_t>(memory) % sizeof(uint64_t) == 0 ? bytes / static_cast<uint32_t>(kLineDataBytes) : 0;
#pragma unroll 1
    for (uint32_t first = threadIdx.x / 32 * kLinesOfWarp; first < lines; first += kLinesAtOnce * stride())
      if (!body(first, first + (kLinesAtOnce - 1) * stride() + kLinesOfWarp <= wholeLines)) return;
  }

  __device__ __forceinline__ void send(const std::byte* from, uint32_t bytes, uint64_t flag) const {
    Words2* const lines = this->slot();
    forEachBatch(from, bytes, [&](uint32_t first, bool isWhole) {
      Values value;
#pragma unroll
      for (int i = 0; i < kLinesAtOnce; ++i) value[i] = load(from, lineOf(first, i), bytes, isWhole);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kLinesAtOnce; ++i) {
        if (isFlag()) value[i].word[1] = flag;
        if (isWhole || lineOf(first, i) < linesOf(bytes)) arch::storeRelaxedSys(lines + lineOf(first, i) * kPartsOfLine + part(), value[i]);
      }
      return true;
    });
  }

  __device__ __forceinline__ void receive(std::byte* to, uint32_t bytes, uint64_t flag) {
    const Words2* const lines = this->slot();
    forEachBatch(to, bytes, [&](uint32_t first, bool isWhole) {
      Values value;
      failed_ = failed_ || !waitUntilOfWarp(comm_.wait, this->note(Waiting::ForCell), flag, [&](uint64_t& seen) {
#pragma unroll
                  for (int i = 0; i < kLinesAtOnce; ++i)
                    if (isWhole || lineOf(first, i) < linesOf(bytes))
                      value[i] = arch::loadRelaxedSys(lines + lineOf(first, i) * kPartsOfLine + part());
                  bool areComplete = true;
#pragma unroll
                  for (int i = 0; i < kLinesAtOnce; ++i) {
                    if (!isFlag() || (!isWhole && lineOf(first, i) >= linesOf(bytes)) || value[i].word[1] == flag) continue;
                    areComplete = false;
                    seen = value[i].word[1];
                  }
                  return areComplete;
                });
      if (failed_) return false;
#pragma unroll
      for (int i = 0; i < kLinesAtOnce; ++i) store(value[i], to, lineOf(first, i), bytes, isWhole);
      return true;
    });
  }

  __device__ __forceinline__ Words2 load(const std::byte* from, uint32_t line, uint32_t bytes, bool isWhole) const {
    const uint32_t at = placeOf(line);
    Words2 value{};
    if (isWhole) {
      const auto* words = reinterpret_cast<const uint64_t*>(from + at);
      value.word[0] = arch::loadWeak(words);
      value.word[1] = arch::loadWeak(words + (isFlag() ? 0 : 1));
    } else {
      value.word[0] = loadPlain(from, at, bytes, message_.elementBytes);
      if (!isFlag()) value.word[1] = loadPlain(from, at + 8, bytes, message_.elementBytes);
    }
    return value;
  }
  __device__ __forceinline__ void store(const Words2& value, std::byte* to, uint32_t line, uint32_t bytes, bool isWhole) const {
    const uint32_t at = placeOf(line);
    if (isWhole) {
      auto* words = reinterpret_cast<uint64_t*>(to + at);
      arch::storeWeak(words, value.word[0]);
      if (!isFlag()) arch::storeWeak(words + 1, value.word[1]);
    } else {
      storePlain(to, at, value.word[0], bytes, message_.elementBytes);
      if (!isFlag()) storePlain(to, at + 8, value.word[1], bytes, message_.elementBytes);
    }
  }
};

}  // namespace

const void* loneLineMessages() { return reinterpret_cast<const void*>(&loneMessageKernel<LineMessage>); }

}  // namespace tutti::exec::cuda
