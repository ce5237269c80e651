// Kernels of lone calls over windows of lines: those that combine, one a type, and the one that moves.
#include "exec/cuda/lone_lines.cuh"

namespace tutti::exec::cuda {
namespace {

struct Function {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&loneKernel<LoneLines<Combined<kType>>>);
  }
};

}  // namespace

LoneEntry loneLinesEntry() {
  static const KernelEntry combine = makeEntry({mostLoneThreads(Protocol::Lines), 0}, Function{});
  return {"linewindow", combine, reinterpret_cast<const void*>(&loneKernel<LoneLines<Moved>>)};
}

}  // namespace tutti::exec::cuda
