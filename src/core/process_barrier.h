// A full barrier in all running threads of this process, for protocols in which one side runs often and must cost nothing, and the other
// side may pay for both (docs/decisions/0005). Any thread.
#pragma once

namespace tutti {

/// Registers for them, and for those of other processes. Where the process has several threads the kernel takes a grace period of some
/// 20 ms for each: that is done in the background, and whoever needs the answer waits for it. For who has something else to do first.
void askForProcessBarriers();
/// Whether the kernel offers it. Known from the first answer on, which is to come before anybody relies on it.
bool takesProcessBarriers();
/// Whether other processes can have this one's threads execute one too (MEMBARRIER_CMD_GLOBAL_EXPEDITED).
bool takesBarriersOfOthers();
/// Of two threads of which one stores A, then loads B, with no more than a compiler barrier in between, and the other one stores B, calls
/// this, then loads A, one sees what the other stored. A fence of the caller alone where the kernel offers no more.
void processBarrier();

}  // namespace tutti
