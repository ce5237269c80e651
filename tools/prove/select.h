// Which cases `tutti prove` proves.
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "exec/prove/cases.h"
#include "prove/prove.h"

namespace tutti::tool {

/// Whether `wanted` ("ring", "AllReduce:ring", "all_reduce:ring"; "" for any) names the algorithm.
bool isNamed(const exec::prove::Subject& subject, std::string_view wanted);

/// The standard cases that the options leave. Counts of ranks or slots that the quick ones lack are taken from the full ones.
/// InvalidArgument, with what there is, when an algorithm or a number matches nothing.
Result<std::vector<exec::prove::Case>> selectCases(const ProveOptions& options);

/// One line an algorithm: collective, name, and what it needs.
std::string listAlgorithms();

}  // namespace tutti::tool
