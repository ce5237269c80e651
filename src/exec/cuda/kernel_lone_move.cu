// Kernels of lone calls that move and do not combine, for all types.
#include "exec/cuda/lone_cells.cuh"
#include "exec/cuda/lone_lines.cuh"

namespace tutti::exec::cuda {

const void* loneCellsMove() { return reinterpret_cast<const void*>(&loneKernel<LoneCells<Moved>>); }
const void* loneLinesMove() { return reinterpret_cast<const void*>(&loneKernel<LoneLines<Moved>>); }

}  // namespace tutti::exec::cuda
