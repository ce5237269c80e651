// The files that a benchmark leaves: opened before the run, so that a bad path is known before the time is spent.
// One thread.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"

namespace tutti::bench {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

/// Empty path: no file, and no error.
Result<File> openOutput(const std::string& path);

/// Writes and closes it; does nothing without a file.
Status writeOutput(File file, const std::string& path, const std::string& text);

/// "a/b.svg" → "a/b-all_gather.svg".
std::string pathFor(const std::string& path, std::string_view operation);

}  // namespace tutti::bench
