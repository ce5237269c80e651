// What becomes of communicators when a process of the host is gone: they fail, with words that name its ranks and what they did last.
//
// Owner: none; the arena remembers. Any thread of any rank, and the thread of the bootstrap.
// 1. A hub of the arena fails whether it was attached before the loss was known or afterwards.
#pragma once

#include "bootstrap/roster.h"
#include "transport/local/hub.h"

namespace tutti::comm {

/// `process` of the roster is gone: every hub of the arena that a rank of it has not left. Of another host's, in jobs in which failures go
/// to everybody at once: those who have heard from it say so, and what; whoever has not waits a moment for them.
void failWithout(transport::local::Arena& arena, const bootstrap::Roster& roster, int32_t process, const Status& cause);

/// To be called by who has attached a hub: of losses that are known by then.
void failIfLost(transport::local::Hub& hub);

/// For who waits: has a look whether a process of this host has ended without a word, and if so does as failWithout(). The mesh is the
/// sooner, but who loses a process tells along its tree, in which those may be missing that have left in peace. Any thread, seldom a system
/// call.
void lookForDead(transport::local::Hub& hub);
/// The same, of who has found a process of the host dead.
void failWithout(transport::local::Hub& hub, int32_t process);

/// Of a rank whose process has ended, as far as this host can tell: the words of the loss, and what it did last.
Status lossOf(transport::local::Hub& hub, Rank rank);

}  // namespace tutti::comm
