// What a process tells the roots of a communicator that it cannot take part in, when it has no way to tell them: no descriptor is left for
// a socket, or no interface is what was asked for.
//
// Owner: nobody; the thread that says it waits until it is said. Linux, unshare(2) and clone(2).
// 1. It is said from a thread that has a table of descriptors of its own. What it closes there, to have room for its sockets, stays open in
//    the process. Where a container's filter forbids such a table to a thread, it is said from a process that shares this one's memory, as
//    posix_spawn() has one for a moment: nobody else has to wait for it, or hears that it ended. Where there is none either, it makes do
//    with what is left, and may say nothing.
// 2. Where no thread is to be had it is said from the caller's.
// 3. Three seconds at most; a few milliseconds with roots that listen, a second with one that has no descriptors either. Call it without a
//    lock that the service's thread may want.
#pragma once

#include <span>

#include "bootstrap/unique_id.h"
#include "core/status.h"

namespace tutti::bootstrap {

/// Each root that can be reached ends its communicator with `cause` for everybody else.
void sayLastWords(std::span<const UniqueId> roots, const Status& cause);

}  // namespace tutti::bootstrap
