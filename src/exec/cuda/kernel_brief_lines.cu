// The kernels of brief calls over windows of lines.
#include "exec/cuda/brief_lines.cuh"

namespace tutti::exec::cuda {

LoneEntry briefLinesEntry(bool isPair) { return briefEntryOf<BriefLines>(isPair); }

}  // namespace tutti::exec::cuda
