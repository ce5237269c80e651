#include "topo/view.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "core/format.h"
#include "topo/data.h"

namespace tutti::topo::view_test {
namespace {

TEST(View, EveryFileWithGpusIsSeenFromOneAndTwoNodes) {
  int seen = 0;
  int partial = 0;
  for (const std::string& file : test::filesOf("", ".xml")) {
    const auto machine = readXml(file + ".xml");
    ASSERT_TRUE(machine.has_value()) << machine.error().text();
    const auto devs = gpuDevs(*machine);
    ASSERT_TRUE(devs.has_value()) << devs.error().text();
    if (devs->empty()) {
      ++partial;
      EXPECT_FALSE(identicalNodes(*machine, 1, false, {}).has_value());
      continue;
    }
    for (const int nodes : {1, 2}) {
      const auto view = makeView(*machine, *identicalNodes(*machine, nodes, false, {}));
      ASSERT_TRUE(view.has_value()) << file << ": " << view.error().text();
      EXPECT_GT(view->system.count(NodeKind::Gpu), 0) << file;
      EXPECT_GT(view->system.maxGBps + view->system.totalGBps, 0) << file;
      for (const NodeId gpu : view->system.all(NodeKind::Gpu)) {
        for (const NodeId peer : view->system.all(NodeKind::Gpu)) EXPECT_LT(view->paths.get(gpu, peer).type, PathType::Net) << file;
      }
    }
    ++seen;
  }
  std::printf("%d files with GPUs, %d partial ones%s\n", seen, partial,
              test::hasDataSet() ? "" : "; the data set is absent, its other files are skipped");
  EXPECT_GE(seen, 28);
}

TEST(View, ACliqueSpansItsHostsButNetsStayWithTheirOwn) {
  const auto machine = readXml(test::ownFile("nvidia-gb200-nvl72-tray"));
  ASSERT_TRUE(machine.has_value());
  const auto view = makeView(*machine, *identicalNodes(*machine, 18, true, {}));
  ASSERT_TRUE(view.has_value()) << view.error().text();
  ASSERT_EQ(view->system.count(NodeKind::Gpu), 72);
  EXPECT_FALSE(view->system.inter);
  EXPECT_EQ(view->system.hostHashes.size(), 18u);
  const NodeId gpu = view->system.gpuOfRank(0);
  EXPECT_EQ(view->paths.get(gpu, view->system.gpuOfRank(71)).type, PathType::Nvl);
  EXPECT_EQ(view->paths.get(gpu, view->system.all(NodeKind::Net).back()).type, PathType::Dis);
}

TEST(View, AnotherRankSeesItsOwnSide) {
  const auto machine = readXml(test::ownFile("pcie-l40sx8-2switch-2nic"));
  ASSERT_TRUE(machine.has_value());
  auto request = *identicalNodes(*machine, 2, false, {});
  request.rank = 7;
  const auto view = makeView(*machine, request);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->system.count(NodeKind::Gpu), 4) << "the other four are reached faster over the network";
  EXPECT_NE(view->system.gpuOfRank(7), kNoNode);
  EXPECT_EQ(view->system.gpuOfRank(0), kNoNode);
}

TEST(View, RefusesDevsThatAreNotThere) {
  const auto machine = readXml(test::ownFile("pcie-l4x2-amd1s"));
  ASSERT_TRUE(machine.has_value());
  const std::vector<int> absent = {0, 2};
  EXPECT_NE(identicalNodes(*machine, 1, false, absent).error().text().find("there is no GPU 2; there are 2, of dev 0 to 1"),
            std::string::npos);
  const std::vector<int> twice = {0, 0};
  EXPECT_EQ(identicalNodes(*machine, 1, false, twice).error().text(), "GPU 0 is named twice");
  auto request = *identicalNodes(*machine, 1, false, {});
  request.rank = 2;
  EXPECT_FALSE(makeView(*machine, request).has_value());
}

TEST(View, RefusesAGpuThatIsNotWhereItBelongs) {
  for (const char* text : {"<system version=\"1\"><cpu numaid=\"0\">\n<gpu dev=\"0\"/></cpu></system>",
                           "<system version=\"1\"><cpu numaid=\"0\">\n"
                           "<pci busid=\"0:1\"><gpu dev=\"0\"/><gpu dev=\"1\"/></pci></cpu></system>"}) {
    const auto machine = parseXml("t.xml", text);
    const auto view = makeView(*machine, *identicalNodes(*machine, 1, false, {}));
    ASSERT_FALSE(view.has_value());
    const bool isSecond = std::string_view(text).find("dev=\"1\"") != std::string_view::npos;
    EXPECT_EQ(view.error().text(), format("t.xml:2: <gpu dev=\"{}\"> is misplaced; expected it as the only <gpu> of a <pci> below a <cpu>",
                                          isSecond ? 1 : 0));
  }
}

/// Not a limit, which a busy machine would break: the times, for who wants to know.
TEST(View, TimesOfReadingAndLooking) {
  std::vector<double> times;
  std::string slowest;
  double most = 0;
  for (const std::string& file : test::filesOf("", ".xml")) {
    std::vector<double> ofFile;
    for (int round = 0; round < 5; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      const auto machine = readXml(file + ".xml");
      ASSERT_TRUE(machine.has_value());
      const auto request = identicalNodes(*machine, 2, false, {});
      if (!request) break;
      ASSERT_TRUE(makeView(*machine, *request).has_value());
      ofFile.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
    if (ofFile.empty()) continue;
    std::sort(ofFile.begin(), ofFile.end());
    times.push_back(ofFile[ofFile.size() / 2]);
    if (times.back() > most) slowest = file;
    most = std::max(most, times.back());
  }
  std::sort(times.begin(), times.end());
  std::printf("XML to paths of two nodes: median %.2f ms, worst %.2f ms (%s)\n", times[times.size() / 2], most,
              test::testName(slowest).c_str());
  EXPECT_LT(most, 5000);
}

}  // namespace
}  // namespace tutti::topo::view_test
