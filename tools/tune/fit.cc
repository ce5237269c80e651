#include "tune/fit.h"

#include <cmath>

namespace tutti::tool {

double squaredLogError(double estimate, double measured) {
  const double error = std::log(estimate / measured);
  return error * error;
}

double fit(std::span<double* const> values, const std::function<double()>& loss) {
  constexpr int kMostRounds = 200;
  double least = loss();
  for (double step = 2; step > 1.01; step = std::sqrt(step)) {
    bool moved = true;
    for (int round = 0; moved && round < kMostRounds; ++round) {
      moved = false;
      for (double* const value : values) {
        for (const double factor : {step, 1 / step}) {
          const double before = *value;
          *value = before * factor;
          const double now = loss();
          if (now < least * (1 - 1e-9)) {
            least = now;
            moved = true;
            break;
          }
          *value = before;
        }
      }
    }
  }
  return least;
}

}  // namespace tutti::tool
