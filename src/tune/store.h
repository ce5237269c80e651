// Constants that were measured on a machine and kept: where they lie, and which machine they are of.
//
// Pure functions of the file system; any thread.
// 1. A file is a platform (platform.h) with the key of the machine: <folder>/tune-<key>.json. One of another machine is refused.
// 2. Writing replaces the file at once: a reader sees the old one or the new one.
#pragma once

#include <optional>
#include <string>

#include "core/status.h"
#include "tune/platform.h"

namespace tutti::tune {

/// 16 hexadecimal digits: the processor's model, which processors and NUMA nodes there are, and NVIDIA's GPUs with their models. The same
/// in all processes of a machine, also in containers that are confined to some of its processors.
std::string machineKey();

/// How many GPUs NVIDIA's driver lists, in whichever containers the process is.
int32_t listedGpus();

/// `tuttiDir` (TUTTI_CACHE_DIR) itself; else $XDG_CACHE_HOME/tutti; else ~/.cache/tutti; empty when there is neither.
std::string cacheFolder(const std::string& tuttiDir);

std::string storedPath(const std::string& folder, const std::string& key);

/// None when there is no file. An error names the file and what is wrong with it.
Result<std::optional<Platform>> readStored(const std::string& folder, const std::string& key);
/// Makes the folder, too.
Status writeStored(const std::string& folder, const Platform& platform);

/// Of all constants: what two ranks compare. Never 0.
uint32_t digestOf(const Platform& platform);

}  // namespace tutti::tune
