// Kernels of lone calls over windows of cells: those that combine, one a type, and the one that moves.
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

LoneEntry loneCellsEntry() {
  static const KernelEntry combine = makeEntry({mostLoneThreads(Protocol::Cells), 0}, Function{});
  return {"lone", combine, reinterpret_cast<const void*>(&loneKernel<LoneCells<Moved>>)};
}

}  // namespace tutti::exec::cuda
