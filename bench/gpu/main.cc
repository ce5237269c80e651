// bench_gpu: two collective-communication libraries on the GPUs of one machine. See --help; bench/gpu/compare and its neighbours run it.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>

#include "gpu/compare.h"
#include "gpu/life.h"
#include "gpu/overlap.h"
#include "gpu/torture.h"

namespace {

using namespace tutti::bench::gpu;

/// A mode after the other, each in processes of its own. How many blocks a call takes is counted in a capture of it; so that eager ones are
/// counted as they are made, what libraries do for buffers of captured calls alone is off there. They read that variable once.
int compareModes(const BenchOptions& options) {
  constexpr const char* kRegistersCaptured = "NCCL_GRAPH_REGISTER";
  constexpr double kPartOfFirst = 0.65;  // of the time: eager calls take longer
  const bool isGiven = std::getenv(kRegistersCaptured) != nullptr;
  const auto begin = std::chrono::steady_clock::now();
  int worst = 0;
  for (size_t i = 0; i < options.modes.size() && worst != kExitBroken && worst != kExitHang; ++i) {
    BenchOptions one = options;
    one.modes = {options.modes[i]};
    one.appends = i > 0;
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    one.seconds = std::max(0.0, options.seconds - passed) * (i + 1 < options.modes.size() ? kPartOfFirst : 1);
    if (!isGiven && one.modes.front() == Mode::Eager) setenv(kRegistersCaptured, "0", 1);
    worst = std::max(worst, runRanks(one.ranks, one.limitSeconds, [&](World& world) { return runCompare(world, one); }));
    if (!isGiven) unsetenv(kRegistersCaptured);
  }
  return worst;
}

int run(const BenchOptions& options) {
  if (options.command == "plot") return plotRows(options.plot[0], options.plot[1]);
  if (options.command == "compare") return compareModes(options);
  const auto runRank = options.command == "life" ? runLife : options.command == "overlap" ? runOverlap : runTorture;
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
