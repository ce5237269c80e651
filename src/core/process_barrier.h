// A full barrier in all running threads of this process, for protocols in which one side runs often and must cost nothing, and the other
// side may pay for both (docs/decisions/0005). Any thread.
#pragma once

namespace tutti {

/// Whether the kernel offers it. Asked once, at the first call, which is to come before anybody relies on it.
bool takesProcessBarriers();
/// Of two threads of which one stores A, then loads B, with no more than a compiler barrier in between, and the other one stores B, calls
/// this, then loads A, one sees what the other stored. A fence of the caller alone where the kernel offers no more.
void processBarrier();

}  // namespace tutti
