// The kernels of brief calls over windows of cells.
#include "exec/cuda/brief_cells.cuh"

namespace tutti::exec::cuda {

LoneEntry briefCellsEntry(bool isPair) {
  LoneEntry entry = briefEntryOf<BriefCells>(isPair);
  entry.moveHalves = isPair ? reinterpret_cast<const void*>(&briefKernel<BriefCells<MovedHalves, 1>>)
                            : reinterpret_cast<const void*>(&briefKernel<BriefCells<MovedHalves, kPeersAtOnce>>);
  return entry;
}

}  // namespace tutti::exec::cuda
