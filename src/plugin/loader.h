// External libraries of every kind: which files a name stands for, how they are opened, what they log with, what their codes say.
//
// Owner: who opens one. Any thread.
// 1. A name is tried as it is given, then, when it is no path and not lib….so, as lib<prefix>-<name>.so.
// 2. "STATIC_PLUGIN" is the program itself.
// 3. A plugin exports one variable a version; versions are tried in the order given, the newest first.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/unique_library.h"

namespace tutti::plugin {

/// The files to try for a name, in order; an empty one is the program itself. `prefix`: "nccl-net", "nccl-tuner".
std::vector<std::string> filesOf(std::string_view name, std::string_view prefix);

/// SystemError with what every file came to when none can be opened.
Result<UniqueLibrary> open(std::string_view name, std::string_view prefix);

/// A variable that the library exports; null when it does not.
const void* symbolOf(const UniqueLibrary& library, const char* symbol);

/// The first version, not above `newest`, that the library exports, with its variable; nulls when there is none.
template <class Version>
struct Found {
  const Version* version = nullptr;
  const void* raw = nullptr;
};
template <class Version>
Found<Version> find(const UniqueLibrary& library, std::span<const Version> versions, int newest) {
  for (const Version& version : versions) {
    if (version.number > newest) continue;
    if (const void* const raw = symbolOf(library, version.symbol)) return {&version, raw};
  }
  return {};
}

/// Whether what a plugin calls its name is one: not null, and of a sane length.
bool isName(const char* name);

/// A plugin's log, as its ABI has it.
using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
Logger logger();

/// What a plugin's result code says; Ok for 0. `kind`: "network", "tuner".
Status statusOf(int code, std::string_view kind, std::string_view plugin, std::string_view what);

}  // namespace tutti::plugin
