#include "topology/times.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "topology/expected.h"

namespace tutti::tool {
namespace {

double cpuMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class Part>
double medianOf(const std::vector<TimesOfRun>& runs, Part part) {
  std::vector<double> values;
  for (const TimesOfRun& run : runs) values.push_back(part(run));
  return median(std::move(values));
}

std::string nameOf(const std::string& file) { return file.substr(file.rfind('/') + 1); }

int runCompared(const TimesOptions& options) {
  std::vector<Compared> all;
  for (const std::string& file : options.files) {
    auto rows = compareTimes(file, options.expected, options.runs);
    if (!rows) {
      std::fprintf(stderr, "tutti topo: %s\n", rows.error().text().c_str());
      return rows.error().code() == Code::SystemError ? 3 : 2;
    }
    all.insert(all.end(), rows->begin(), rows->end());
  }
  std::sort(all.begin(), all.end(), [](const Compared& a, const Compared& b) { return a.ms * b.referenceMs > b.ms * a.referenceMs; });
  std::printf("%-52s %9s %9s %7s   (ms for system, paths and channels; ours of CPU time, %d runs)\n", "", "theirs", "ours", "times",
              options.runs);
  for (const Compared& one : all)
    std::printf("%-52s %9.3f %9.3f %7.1f\n", one.name.c_str(), one.referenceMs, one.ms, one.referenceMs / one.ms);
  std::printf("%zu rows\n", all.size());
  return 0;
}

}  // namespace

Result<std::vector<Compared>> compareTimes(const std::string& file, const std::string& expected, int runs) {
  std::string name = nameOf(file);
  if (name.ends_with(".xml")) name.resize(name.size() - 4);
  const auto facts = readExpected(expected + "/" + name + ".json");
  if (!facts) return tl::unexpected(facts.error());
  std::vector<Compared> rows;
  for (const ExpectedRun& run : *facts) {
    if (run.hasGraphFile || run.ms <= 0) continue;
    const auto times = timeRuns(file, run.facts, runs, run.graphs);
    if (!times) return tl::unexpected(times.error());
    rows.push_back({name + " " + run.name, medianOf(*times, [](const TimesOfRun& one) { return one.foundMs(); }), run.ms});
  }
  return rows;
}

Result<std::vector<TimesOfRun>> timeRuns(const std::string& file, const FactsOptions& facts, int runs, const GraphFactsOptions& graphs) {
  std::vector<TimesOfRun> all;
  for (int i = 0; i < runs; ++i) {
    const double begin = cpuMs();
    const auto machine = topo::readXml(file);
    if (!machine) return tl::unexpected(machine.error());
    const double read = cpuMs();
    const auto view = viewOf(*machine, facts);
    if (!view) return tl::unexpected(view.error());
    const double seen = cpuMs();
    const auto found = graphsOf(*view, facts, graphs);
    if (!found) return tl::unexpected(found.error());
    all.push_back({read - begin, seen - read, cpuMs() - seen});
  }
  return all;
}

int runTopoTimes(const TimesOptions& options) {
  if (!options.expected.empty()) return runCompared(options);
  std::printf("%-44s %5s %9s %9s %9s %9s %9s %9s   (ms of CPU time, %d runs)\n", "", "nodes", "read", "view", "search", "median", "best",
              "worst", options.runs);
  std::vector<double> medians;
  double most = 0;
  double mostOfAll = 0;
  std::string slowest = "none";
  for (const std::string& file : options.files) {
    const std::string name = nameOf(file);
    for (const int nodes : options.nodes) {
      const FactsOptions facts{.nodes = nodes, .isClique = options.isClique, .gpus = {}, .settings = {}};
      const auto runs = timeRuns(file, facts, options.runs);
      if (!runs) {
        std::fprintf(stderr, "tutti topo: %s\n", runs.error().text().c_str());
        if (!topo::readXml(file)) return runs.error().code() == Code::SystemError ? 3 : 2;
        continue;  // read, but without channels
      }
      const auto sum = [](const TimesOfRun& run) { return run.sumMs(); };
      const auto [least, longest] =
          std::minmax_element(runs->begin(), runs->end(), [](const auto& a, const auto& b) { return a.sumMs() < b.sumMs(); });
      medians.push_back(medianOf(*runs, sum));
      std::printf("%-44s %5d %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f\n", name.c_str(), nodes,
                  medianOf(*runs, [](const TimesOfRun& run) { return run.readMs; }),
                  medianOf(*runs, [](const TimesOfRun& run) { return run.viewMs; }),
                  medianOf(*runs, [](const TimesOfRun& run) { return run.searchMs; }), medians.back(), least->sumMs(), longest->sumMs());
      mostOfAll = std::max(mostOfAll, longest->sumMs());
      if (medians.back() <= most) continue;
      most = medians.back();
      slowest = name + " on " + std::to_string(nodes);
    }
  }
  if (medians.empty()) return 0;
  std::printf("%zu rows: median %.3f ms; slowest median %.3f ms (%s), slowest run %.3f ms\n", medians.size(), median(medians), most,
              slowest.c_str(), mostOfAll);
  return 0;
}

}  // namespace tutti::tool
