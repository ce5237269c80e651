// The kernel of a few messages (message_block.cuh) over pipes of cells. Cell c of a piece belongs to thread c % blockDim.x.
#include "exec/cuda/cell.cuh"
#include "exec/cuda/message_block.cuh"

namespace tutti::exec::cuda {
namespace {

constexpr int kCellsAtOnce = 4;  ///< of a thread, loaded before the first is needed

class CellMessage : public MessageBlock<CellMessage, Protocol::Cells> {
  using Base = MessageBlock<CellMessage, Protocol::Cells>;
  friend Base;

 public:
  static constexpr Protocol kProtocol = Protocol::Cells;
  using Base::Base;

 private:
  static __device__ __forceinline__ uint32_t cellsOf(uint32_t bytes) { return (max(bytes, 1u) + 7u) / 8u; }
  static __device__ __forceinline__ uint32_t cellAt(uint32_t first, int i) { return first + static_cast<uint32_t>(i) * blockDim.x; }

  __device__ __forceinline__ void send(const std::byte* from, uint32_t bytes, uint64_t flag) const {
    arch::Words2* const cells = this->slot();
    const uint32_t count = cellsOf(bytes);
#pragma unroll 1
    for (uint32_t first = threadIdx.x; first < count; first += kCellsAtOnce * blockDim.x) {
      uint64_t word[kCellsAtOnce];
#pragma unroll
      for (int i = 0; i < kCellsAtOnce; ++i) word[i] = loadPlain(from, kCellDataBytes * cellAt(first, i), bytes, message_.elementBytes);
#pragma unroll
      for (int i = 0; i < kCellsAtOnce; ++i)
        if (cellAt(first, i) < count) arch::storeRelaxedSys(cells + cellAt(first, i), sealCell(word[i], flag));
    }
    if (flag % kRewriteEvery >= static_cast<uint64_t>(comm_.pipes.slots)) return;
#pragma unroll 1
    for (uint32_t c = count + threadIdx.x; c < comm_.pipes.slotBytes / kCellBytes; c += blockDim.x)
      arch::storeRelaxedSys(cells + c, sealCell(0, flag));
  }

  __device__ __forceinline__ void receive(std::byte* to, uint32_t bytes, uint64_t flag) {
    const arch::Words2* const cells = this->slot();
    const uint32_t count = cellsOf(bytes);
#pragma unroll 1
    for (uint32_t first = threadIdx.x; first < count && !failed_; first += kCellsAtOnce * blockDim.x) {
      arch::Words2 cell[kCellsAtOnce];
      failed_ = !waitUntil(comm_.wait, this->note(Waiting::ForCell), flag, [&](uint64_t& seen) {
#pragma unroll
        for (int i = 0; i < kCellsAtOnce; ++i)
          if (cellAt(first, i) < count) cell[i] = arch::loadRelaxedSys(cells + cellAt(first, i));
        bool areSealed = true;
#pragma unroll
        for (int i = 0; i < kCellsAtOnce; ++i) {
          if (cellAt(first, i) >= count || isSealed(cell[i], flag)) continue;
          areSealed = false;
          seen = cell[i].word[0] >> 32;
        }
        return areSealed;
      });
      if (failed_) return;
#pragma unroll
      for (int i = 0; i < kCellsAtOnce; ++i)
        if (cellAt(first, i) < count) storePlain(to, kCellDataBytes * cellAt(first, i), dataOf(cell[i]), bytes, message_.elementBytes);
    }
  }
};

}  // namespace

const void* loneMessages() { return reinterpret_cast<const void*>(&loneMessageKernel<CellMessage>); }

}  // namespace tutti::exec::cuda
