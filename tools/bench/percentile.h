// The statistic of all timings.
// Pure function; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tutti::bench {

/// The smallest value that at least `percent` of the values do not exceed. `values` is sorted and not empty.
inline double percentile(const std::vector<double>& values, double percent) {
  const double place = std::ceil(percent / 100 * static_cast<double>(values.size()));
  const auto index = static_cast<size_t>(std::max(place, 1.0)) - 1;
  return values[std::min(index, values.size() - 1)];
}

}  // namespace tutti::bench
