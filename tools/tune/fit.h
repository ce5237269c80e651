// Finds the constants with which a model comes nearest to what was measured.
//
// Pure functions; any thread. The same input gives the same constants on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tutti::tool {

/// How strongly a fit holds a constant to what it was: as far as measurements that say nothing about it let it be.
inline constexpr double kHold = 0.002;

/// Changes `values` (all above 0) by factors until no small one makes `loss` less: a search along each of them in turn,
/// and, where they are few, along pairs that go opposite ways, with steps from a factor of 2 down to 1%. Returns the loss.
double fit(std::span<double* const> values, const std::function<double()>& loss);

/// The loss of an estimate: how far its logarithm is from the measured one's, squared. 0.05 is 25% too much.
double squaredLogError(double estimate, double measured);

/// The same, but growing no faster than the logarithm itself where it is far off: calls that something disturbed bend a fit less.
double boundedLogError(double estimate, double measured);

}  // namespace tutti::tool
