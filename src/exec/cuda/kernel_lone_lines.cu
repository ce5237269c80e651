// Kernels of lone calls over windows of lines that combine, one a type.
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

const KernelEntry& loneLinesEntry() {
  static const KernelEntry entry = makeEntry({mostLoneThreads(Protocol::Lines), 0}, Function{});
  return entry;
}

}  // namespace tutti::exec::cuda
