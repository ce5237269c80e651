// Sizes and numbers as people write them: "64M", "1.5K", "0,3,5".
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace tutti::bench {

/// Bytes: a number with an optional K, M, G or T (powers of 1024; "KB", "KiB" and small letters too). Errors name the text.
Result<uint64_t> parseBytes(std::string_view text);

/// "8 B", "64 KiB", "1.5 MiB": exact where short, otherwise two decimals.
std::string formatBytes(uint64_t bytes);

/// At most five significant digits, no exponent up to 10^8: what fits a column.
std::string formatNumber(double value);

/// "2,4,8" or "2-5,8" or both; every number within [least, most].
Result<std::vector<int>> parseList(std::string_view text, int least, int most);

}  // namespace tutti::bench
