#include "topology/show.h"

#include <gtest/gtest.h>

#include "topo/data.h"
#include "topology/facts.h"

namespace tutti::tool::show_test {
namespace {

std::string show(std::string_view name, const FactsOptions& options) {
  const auto machine = topo::readXml(topo::test::ownFile(name));
  EXPECT_TRUE(machine.has_value());
  const auto view = viewOf(*machine, options);
  EXPECT_TRUE(view.has_value()) << view.error().text();
  return showTopology(*view, options.settings);
}

TEST(Show, TheTreeOfATrayWithItsLinks) {
  const std::string text = show("nvidia-gb200-nvl72-tray", {.nodes = 2, .gpus = {}, .settings = {}});
  for (const char* line :
       {"4 GPUs, 4 nets, 2 CPUs; best path 48 GB/s; 8 ranks, of which some are reached over the network\n",
        "\nCPU0-0  arm64  CPUs 0-7,32-95\n", "    PCI 48 - GPU0  0008:01:00.0  dev 0  sm 100  GDR\n        NVL 721.8 > NVS0-0\n",
        "    C2C 223.56 > GPU0\n", "        NET 50 - NET0  port 1  GDR  serves GPU0\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
  }
}

TEST(Show, PathsInColumnsAndWhatGdrReaches) {
  const std::string text = show("pcie-l4x2-intel1s", {.gpus = {}, .settings = {}});
  EXPECT_NE(text.find("        GPU0    GPU1\nGPU0    -       PHB 24\nGPU1    PHB 24  -\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("GPUDirect"), std::string::npos) << "there is no net";
  EXPECT_NE(
      show("single-a100-1nic", {.nodes = 2, .gpus = {}, .settings = {.netGdrLevel = topo::PathType::Loc}}).find("(receiving)\n  none\n"),
      std::string::npos);
  EXPECT_NE(show("single-a100-1nic", {.nodes = 2, .gpus = {}, .settings = {.netGdrLevel = topo::PathType::Sys}}).find("  GPU0: NET0\n"),
            std::string::npos);
}

TEST(Show, WhereThreadsMayRun) {
  const auto machine = topo::readXml(topo::test::ownFile("nvidia-gb200-nvl72-tray"));
  ASSERT_TRUE(machine.has_value());
  const auto view = viewOf(*machine, {.gpus = {}, .settings = {}});
  ASSERT_TRUE(view.has_value());
  const topo::CpuSet allowed = *topo::CpuSet::fromList("2-40");
  const std::string text = showAffinity(view->system, view->paths, allowed, false);
  for (const char* line : {"use CPUs 2-40 (39)\n", "  of CPU0-0: 2-7,32-40 (15)\n", "  of CPU0-1: none\n",
                           "  threads of GPU0: 2-7,32-40 (15)\n", "  threads of GPU3: anywhere, as none near it is allowed\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
  }
  const topo::CpuSet caches[] = {*topo::CpuSet::fromList("0-7"), *topo::CpuSet::fromList("32-39"), *topo::CpuSet::fromList("6-9")};
  const std::string withCaches = showAffinity(view->system, view->paths, allowed, false, caches);
  EXPECT_NE(withCaches.find("  of CPU0-0: 2-7,32-40 (15)\n    below one cache: 2-7 (6)\n    below one cache: 32-39 (8)\n  of CPU0-1"),
            std::string::npos)
      << withCaches;
  EXPECT_NE(showAffinity(view->system, view->paths, allowed, true).find("  threads of GPU0: 0-7,32-95 (72)\n"), std::string::npos);
}

}  // namespace
}  // namespace tutti::tool::show_test
