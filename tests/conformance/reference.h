// What a case must produce: by the contract bit for bit, and, independently of the library's arithmetic, in higher precision.
// Pure functions; any thread.
//
// 1. expectedOutput() folds in the order that the algorithm states, with the scalar functions of core/element.h, which is what
//    the contract is written in. Moves are moves.
// 2. checkPrecise() decodes by itself and computes in long double, or in 64 bits modulo the type's width; it knows no order.
//    Tolerance of sums: sum |s_i x_i| * ((1 + u)^(n + 2) - 1) + 2 n * m, with u the unit roundoff and m the smallest subnormal
//    of the type: n - 1 additions, the rounding of each scaled contribution and that of 1/n. Products: the same with |result|.
//    max, min and integers: exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conformance/matrix.h"
#include "connect/layout.h"

namespace tutti::conformance {

using Contents = std::vector<std::byte>;

/// What rank `rank` passes as its send buffer. Depends on the case's seed, data and the rank alone.
Contents makeInput(const Case& c, int rank);

/// The pre-multiplied sum's scalar of a rank, as one element, low bytes first.
uint64_t scalarOf(const Case& c, int rank);

/// The output of every rank; empty for a rank whose output buffer must stay as it was. `channels`, of the call's plan, says on which track
/// of the layout an element is combined, where there are several.
std::vector<Contents> expectedOutput(const Case& c, const std::vector<Contents>& inputs, int32_t channels = 1);

/// Empty when `output`, the result of a reduction of ordinary data on `rank`, is as near as the tolerance says. Long outputs are
/// looked at in a few hundred places.
std::string checkPrecise(const Case& c, const std::vector<Contents>& inputs, int rank, const Contents& output);

/// Who neighbours whom among so many ranks: as the library finds it where the test runs. Natural order, in nodes of TUTTI_NODE_RANKS; by
/// place where the harness has placed the ranks; whatever a test has put here.
using LayoutOf = std::function<connect::Layout(int ranks)>;
LayoutOf& layoutOf();

/// The first difference in words; empty when the bytes are equal.
std::string firstDifference(const Case& c, const std::byte* got, const Contents& wanted);

}  // namespace tutti::conformance
