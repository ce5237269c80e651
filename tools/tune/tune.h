// `tutti tune`: measures this machine and keeps its constants, or says how near a model comes to a table of measured times.
#pragma once

#include <string>

namespace tutti::tool {

struct TuneOptions {
  std::string errorsOf;  ///< a file of bench/measured; empty: measure this machine
  int gpus = 0;  ///< measure so many GPUs instead of host devices
  std::string probesOf;  ///< a file of calls on GPUs that were timed in graphs (bench/gpu/choice), instead of measuring
  bool isDry = false;    ///< measure, and keep nothing
  bool showsAll = false;  ///< every probe
};

/// 0: done; 1: an all-reduce of 16 KiB or more is estimated wrong by more than 25%, or what was measured fits no constants; 2: a file or
/// setting that makes no sense; 3: the file cannot be read or written, or the library failed.
int runTune(const TuneOptions& options);

}  // namespace tutti::tool
