// Kernels of brief calls over windows of lines, those that combine, one a type, and the one that moves; each for two ranks and for more.
#include "exec/cuda/brief_lines.cuh"

namespace tutti::exec::cuda {
namespace {

template <int kPeers>
struct Function {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&briefKernel<BriefLines<Combined<kType>, kPeers>>);
  }
};

template <int kPeers>
LoneEntry entry() {
  static const KernelEntry made = makeEntry({mostBriefThreads(Protocol::Lines, kPeers), 0}, Function<kPeers>{});
  return {"brief", made, reinterpret_cast<const void*>(&briefKernel<BriefLines<Moved, kPeers>>)};
}

}  // namespace

LoneEntry briefLinesEntry(bool isPair) { return isPair ? entry<1>() : entry<kPeersAtOnce>(); }

}  // namespace tutti::exec::cuda
