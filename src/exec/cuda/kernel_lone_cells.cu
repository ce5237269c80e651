// Kernels of lone calls over windows of cells that combine, one a type.
#include "exec/cuda/lone_cells.cuh"

namespace tutti::exec::cuda {
namespace {

struct Function {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&loneKernel<LoneCells<Combined<kType>>>);
  }
};

}  // namespace

const KernelEntry& loneCellsEntry() {
  static const KernelEntry entry = makeEntry({mostLoneThreads(Protocol::Cells), 0}, Function{});
  return entry;
}

}  // namespace tutti::exec::cuda
