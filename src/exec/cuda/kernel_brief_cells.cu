// The kernels of brief calls over windows of cells.
#include "exec/cuda/brief_cells.cuh"

namespace tutti::exec::cuda {

LoneEntry briefCellsEntry(bool isPair) { return briefEntryOf<BriefCells>(isPair); }

}  // namespace tutti::exec::cuda
