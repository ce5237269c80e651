// Numbers and texts out of an environment, with errors that name the variable.
//
// Pure functions; any thread. A variable that is set to nothing counts as not set.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"
#include "launch/rank.h"

namespace tutti::launch {

/// Null when not set.
const std::string* find(const Environment& environment, std::string_view name);
bool has(const Environment& environment, std::string_view name);
/// "" when not set.
std::string textOf(const Environment& environment, std::string_view name);

inline constexpr int64_t kNotSet = -1;

/// kNotSet when not set; an error when it is no whole number from `least`, which is not below 0, to `most`.
Result<int64_t> readNumber(const Environment& environment, std::string_view name, int64_t least, int64_t most);

}  // namespace tutti::launch
