// How waits and verdicts are written down for other processes.
// Pure functions. What is read is checked against the bytes that there are: damaged input gives nothing, never a fault.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "transport/local/waits.h"

namespace tutti::transport::local {

std::string encodeWait(const RankWait& wait);
std::optional<RankWait> decodeWait(std::span<const char> bytes);
/// Whether all ranks and lanes that it names are there: for what came from elsewhere.
bool isWaitAmong(int32_t ranks, const RankWait& wait);

/// Without what lanes wait for, which only the search needs.
std::string encodeVerdict(const Verdict& verdict);
std::optional<Verdict> decodeVerdict(std::span<const char> bytes);

}  // namespace tutti::transport::local
