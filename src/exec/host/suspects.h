// Whom a wait that gave up probably waited for in the end.
//
// Under the lock of transport::local::Waits. Any thread.
#pragma once

#include <vector>

#include "transport/local/hub.h"

namespace tutti::exec::host {

/// Of a verdict that has all but its suspects; `own` is where its rank stood. At most a few; none when calls do not match, which names
/// the ranks by itself. The ways to them are not filled in: who asks for those takes locks, under which others may ask for this one.
std::vector<transport::local::Suspected> suspectsOf(const transport::local::Hub& hub, const transport::local::Waits::State& state,
                                                    const transport::local::Verdict& verdict, const transport::local::RankWait& own);

}  // namespace tutti::exec::host
