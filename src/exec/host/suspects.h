// Whom a wait that gave up probably waited for in the end, and how that rank is reached.
//
// Under the lock of transport::local::Waits. Any thread.
#pragma once

#include <vector>

#include "transport/local/hub.h"

namespace tutti::exec::host {

/// Of a verdict that has all but its suspects; `own` is where its rank stood. At most a few; none when calls do not match, which names
/// the ranks by itself.
std::vector<transport::local::Suspected> suspectsOf(const transport::local::Hub& hub, const transport::local::Waits::State& state,
                                                    const transport::local::Verdict& verdict, const transport::local::RankWait& own);

}  // namespace tutti::exec::host
