// JSON in and out. The one place that includes the (slow to compile) JSON library.
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "bench/call.h"
#include "bench/row.h"

namespace tutti::bench {

/// A JSON list, one object a row; `wrong` is null where nothing was checked.
std::string toJson(const std::vector<Row>& rows);

/// What tuttiExplain says of one rank's part of a call. InternalError when it is not the object that tutti.h promises.
Result<Traffic> parsePlan(const std::string& text);

}  // namespace tutti::bench
