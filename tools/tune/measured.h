// Times of calls that were measured on a machine, from a file (bench/measured), and how near a model comes to them.
//
// Plain values and pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/types.h"
#include "tune/link_model.h"

namespace tutti::tool {

struct Sample {
  Collective collective = Collective::AllReduce;
  uint64_t bytes = 0;  ///< of the larger buffer
  double us = 0;
};

struct Measured {
  std::string name;
  std::string source;
  tune::Fabric fabric;
  std::vector<Sample> samples;  ///< by collective, growing; of collectives that the model of links has constants for
};

/// InvalidUsage with `where` and the place for what is not such a file.
Result<Measured> parseMeasured(std::string_view where, const std::string& text);

/// A sample that was left out of the fit.
struct FitError {
  Sample sample;
  double estimateUs = 0;
  /// 0.1: 10% too much.
  double relative() const { return estimateUs / sample.us - 1; }
};

/// Fits NCCL's constants to every other row of each collective, `first` the first of them (0 or 1), and says what they come to on the
/// others. `constants` holds NCCL's, and then those fitted.
std::vector<FitError> errorsOnOtherRows(const Measured& measured, size_t first, tune::LinkConstants& constants);

}  // namespace tutti::tool
