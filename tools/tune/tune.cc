#include "tune/tune.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "bench/units.h"
#include "tune/measured.h"

namespace tutti::tool {
namespace {

constexpr int kExitWrong = 1;
constexpr int kExitUsage = 2;
constexpr int kExitError = 3;
constexpr double kMostError = 0.25;
constexpr uint64_t kFromBytes = 16384;

int tell(const Status& status, int code) {
  std::fprintf(stderr, "tutti tune: %s\n", status.text().c_str());
  return code;
}

int showErrors(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return tell(error(Code::SystemError, "{}: cannot be read", path), kExitError);
  const auto measured = parseMeasured(path, text.str());
  if (!measured) return tell(measured.error(), kExitUsage);
  std::printf("%s\n%s\n", measured->name.c_str(), measured->source.c_str());
  double worst = 0;
  for (const size_t first : {size_t{0}, size_t{1}}) {
    tune::LinkConstants constants = tune::linkConstants();
    const auto errors = errorsOnOtherRows(*measured, first, constants);
    std::printf("\nfitted to the %s rows, tried on the others\n", first == 0 ? "odd" : "even");
    std::printf("%-14s %10s %12s %12s %8s\n", "", "size", "measured us", "estimate us", "error");
    for (const FitError& one : errors) {
      std::printf("%-14s %10s %12s %12s %7.1f%%\n", std::string(name(one.sample.collective)).c_str(),
                  bench::formatBytes(one.sample.bytes).c_str(), bench::formatNumber(one.sample.us).c_str(),
                  bench::formatNumber(one.estimateUs).c_str(), 100 * one.relative());
      if (one.sample.collective == Collective::AllReduce && one.sample.bytes >= kFromBytes)
        worst = std::max(worst, std::abs(one.relative()));
    }
  }
  std::printf("\nall-reduce from %s on: at most %.1f%%, allowed are %.0f%%\n", bench::formatBytes(kFromBytes).c_str(), 100 * worst,
              100 * kMostError);
  return worst <= kMostError ? 0 : kExitWrong;
}

}  // namespace

int runTune(const TuneOptions& options) { return showErrors(options.errorsOf); }

}  // namespace tutti::tool
