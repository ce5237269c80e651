// Threads of the library's own, in a process that belongs to somebody else.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "core/status.h"

namespace tutti {

/// Starts `run` on a thread that takes no signals: the program's handlers run on the program's threads. `name`, of at most 15 characters,
/// is what debuggers show; null: that of the program. SystemError when the system has no thread left; `purpose` says in it what the thread
/// was for.
Result<std::thread> startThread(const char* name, const char* purpose, std::function<void()> run);

/// Cores that the calling thread may run on, at least 1. Threads of one process may differ.
int32_t availableCores();
/// Tells the set of those cores from all others, also of other machines; 0: not known. May read a file.
uint64_t availableCoreSet();

}  // namespace tutti
