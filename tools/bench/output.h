// The files that a benchmark leaves: opened before the run, so that a bad path is known before the time is spent.
// One thread.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "core/status.h"

namespace tutti::bench {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

/// Empty path: no file, and no error.
Result<File> openOutput(const std::string& path);

/// Writes and closes it; does nothing without a file.
Status writeOutput(File file, const std::string& path, const std::string& text);

}  // namespace tutti::bench
