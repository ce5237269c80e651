// bench_gpu: two collective-communication libraries on the GPUs of one machine. See --help; bench/gpu/compare and its neighbours run it.
#include <exception>

#include "gpu/compare.h"
#include "gpu/life.h"
#include "gpu/overlap.h"
#include "gpu/torture.h"

namespace {

using namespace tutti::bench::gpu;

int run(const BenchOptions& options) {
  if (options.command == "plot") return plotRows(options.plot[0], options.plot[1]);
  const auto runRank = options.command == "life"      ? runLife
                       : options.command == "overlap" ? runOverlap
                       : options.command == "torture" ? runTorture
                                                      : runCompare;
  return runRanks(options.ranks, options.limitSeconds, [&](World& world) { return runRank(world, options); });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parseBenchOptions(argc, argv));
  } catch (const std::exception& problem) {
    stopWith(problem.what());
  }
}
