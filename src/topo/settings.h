// What the environment variables about paths mean.
//
// Pure functions; any thread. They take name and value: who reads the environment is the caller's business.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "topo/paths.h"

namespace tutti::topo {

/// A level as the variables give it: a name (LOC, NVL, … SYS) or the old numbers 0 to 5 (LOC, PIX, PXB, PHB, SYS, SYS; larger ones are
/// SYS).
std::optional<PathType> parseLevel(std::string_view text);

/// The names that applyPathVariable knows.
std::span<const std::string_view> pathVariables();

/// Puts one variable into the settings; names that say nothing about paths do nothing, and so do empty values.
/// Error: a value that the variable does not take.
Status applyPathVariable(std::string_view name, const std::string& value, PathSettings& settings);

}  // namespace tutti::topo
