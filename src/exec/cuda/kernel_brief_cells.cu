// Kernels of brief calls over windows of cells, those that combine, one a type, and the one that moves; each for two ranks and for more.
#include "exec/cuda/brief_cells.cuh"

namespace tutti::exec::cuda {
namespace {

template <int kPeers>
struct Function {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&briefKernel<BriefCells<Combined<kType>, kPeers>>);
  }
};

template <int kPeers>
LoneEntry entry() {
  static const KernelEntry made = makeEntry({mostBriefThreads(Protocol::Cells, kPeers), 0}, Function<kPeers>{});
  return {"brief", made, reinterpret_cast<const void*>(&briefKernel<BriefCells<Moved, kPeers>>)};
}

}  // namespace

LoneEntry briefCellsEntry(bool isPair) { return isPair ? entry<1>() : entry<kPeersAtOnce>(); }

}  // namespace tutti::exec::cuda
