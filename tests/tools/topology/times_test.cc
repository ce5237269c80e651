#include "topology/times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <thread>

#include "topo/data.h"

namespace tutti::tool::times_test {
namespace {

#if defined(TUTTI_SANITIZED)
constexpr double kSlower = 20;
#else
constexpr double kSlower = 1;
#endif

FactsOptions nodesOf(int nodes) { return {.nodes = nodes, .gpus = {}, .settings = {}}; }

// What the search promises: 5 ms for each file, 50 ms at the worst; half take 0.5 ms. Three times that on a busy machine, where 2.2 times
// was seen. CPU time, which what else runs on a core's other half and on its caches still stretches, so that of a few runs the best
// counts, and one that seems slow is tried again a little later.
TEST(Times, FromXmlToChannelsInMilliseconds) {
  constexpr double kMostMs = 3 * 5 * kSlower;
  std::vector<std::pair<double, std::string>> times;
  for (const std::string& file : topo::test::filesOf("", ".xml")) {
    for (const int nodes : {1, 2, 4}) {
      std::optional<double> best;
      for (int tries = 0; tries < 12 && best.value_or(kMostMs) >= kMostMs; ++tries) {
        if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
        const auto runs = timeRuns(file + ".xml", nodesOf(nodes), 3);
        if (!runs) break;
        for (const auto& run : *runs) best = std::min(best.value_or(run.sumMs()), run.sumMs());
      }
      if (best) times.emplace_back(*best, file.substr(file.rfind('/') + 1) + " on " + std::to_string(nodes));
    }
  }
  ASSERT_GT(times.size(), 40U);
  std::sort(times.begin(), times.end());
  std::printf("%zu searches: median %.2f ms, longest %.1f ms (%s)\n", times.size(), times[times.size() / 2].first, times.back().first,
              times.back().second.c_str());
  EXPECT_LT(times.back().first, kMostMs) << times.back().second;
  EXPECT_LT(times[times.size() / 2].first, 3 * 0.5 * kSlower);
}

// Ten times faster where the reference takes long, as its facts say, on another machine (tutti topo times --expected); four times on
// a busy one: beside two compilers 5.9 was seen where a quiet machine gives 10.4. What seems slow is tried again a little later.
TEST(Times, AreATenthOfTheReferencesWhereItIsSlow) {
  int slow = 0;
  for (const std::string& file : topo::test::filesOf("/expected", ".json")) {
    const size_t cut = file.rfind("/expected/");
    std::map<std::string, Compared> best;
    const auto isSlow = [](const auto& entry) { return entry.second.ms * 4 >= entry.second.referenceMs * kSlower; };
    for (int tries = 0; tries < 12 && (tries == 0 || std::any_of(best.begin(), best.end(), isSlow)); ++tries) {
      if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
      const auto rows = compareTimes(file.substr(0, cut) + file.substr(cut + 9) + ".xml", file.substr(0, cut) + "/expected", 3);
      ASSERT_TRUE(rows) << rows.error().text();
      for (const Compared& row : *rows) {
        if (row.referenceMs < 9) continue;
        Compared& kept = best.try_emplace(row.name, row).first->second;
        kept.ms = std::min(kept.ms, row.ms);
      }
    }
    slow += static_cast<int>(best.size());
    for (const auto& entry : best)
      EXPECT_FALSE(isSlow(entry)) << entry.first << ": " << entry.second.ms << " ms, " << entry.second.referenceMs;
  }
  std::printf("%d runs that took the reference 9 ms or more\n", slow);
  EXPECT_GE(slow, 20);
}

TEST(Times, OfEveryRunAndItsParts) {
  const auto runs = timeRuns(topo::test::ownFile("nvidia-dgxh100-h100x8"), nodesOf(2), 4);
  ASSERT_TRUE(runs) << runs.error().text();
  ASSERT_EQ(runs->size(), 4U);
  for (const TimesOfRun& run : *runs) {
    EXPECT_GT(run.readMs, 0);
    EXPECT_GT(run.viewMs, 0);
    EXPECT_GT(run.searchMs, 0);
    EXPECT_DOUBLE_EQ(run.sumMs(), run.readMs + run.viewMs + run.searchMs);
  }
}

TEST(Times, FilesThatCannotBeReadEndIt) {
  EXPECT_EQ(runTopoTimes({.files = {"/no/such.xml"}, .runs = 1, .expected = ""}), 3);
  EXPECT_EQ(runTopoTimes({.files = {TUTTI_SOURCE_DIR "/README.md"}, .runs = 1, .expected = ""}), 2);
  EXPECT_EQ(runTopoTimes({.files = {topo::test::ownFile("single-a100-nonic")}, .nodes = {1}, .runs = 1, .expected = ""}), 0);
  EXPECT_EQ(runTopoTimes({.files = {topo::test::ownFile("single-a100-nonic")}, .runs = 1, .expected = "/no/such"}), 3);
}

}  // namespace
}  // namespace tutti::tool::times_test
