// `tutti bench`: the whole run, from checked options to an exit code.
#pragma once

#include "bench/options.h"

namespace tutti::bench {

/// Prints as it goes. 0: all right; 1: a wrong element, or a file that could not be written; 3: the library failed or hung.
int runBench(const Options& options);

}  // namespace tutti::bench
