#include "tune/fit.h"

#include <cmath>

namespace tutti::tool {

double squaredLogError(double estimate, double measured) {
  const double error = std::log(estimate / measured);
  return error * error;
}

double boundedLogError(double estimate, double measured) {
  constexpr double kFar = 0.2;
  const double error = std::abs(std::log(estimate / measured));
  return error < kFar ? error * error : kFar * (2 * error - kFar);
}

double fit(std::span<double* const> values, const std::function<double()>& loss) {
  constexpr int kMostRounds = 200;
  constexpr size_t kMostPaired = 8;
  double least = loss();
  /// Keeps a move of one value, or of two at once, if it is a better one.
  const auto moves = [&](double& first, double factor, double* second, double otherFactor) {
    const double before = first;
    const double secondBefore = second == nullptr ? 0 : *second;
    first *= factor;
    if (second != nullptr) *second *= otherFactor;
    const double now = loss();
    if (now < least * (1 - 1e-9)) {
      least = now;
      return true;
    }
    first = before;
    if (second != nullptr) *second = secondBefore;
    return false;
  };
  for (double step = 2; step > 1.01; step = std::sqrt(step)) {  // NOLINT(bugprone-float-loop-counter): seven turns
    bool moved = true;
    for (int round = 0; moved && round < kMostRounds; ++round) {
      moved = false;
      for (double* const value : values) moved = moves(*value, step, nullptr, 1) || moves(*value, 1 / step, nullptr, 1) || moved;
      // What one value gains and another loses may cancel out, so that neither would move alone.
      for (double* const one : values)
        for (double* const other : values)
          if (values.size() <= kMostPaired && one != other) moved = moves(*one, step, other, 1 / step) || moved;
    }
  }
  return least;
}

}  // namespace tutti::tool
