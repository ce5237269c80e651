#include "machine/place.h"

#include "machine/played.h"
#include "topo/detect/machine.h"

namespace tutti::machine::place_test {
namespace {

using topo::CpuSet;
using topo::detect::Answers;

CpuSet cpus(const char* list) { return *CpuSet::fromList(list); }

/// Two NUMA nodes of four CPUs, each with two caches.
Machine twoNodes() {
  Answers texts;
  for (int cpu = 0; cpu < 8; ++cpu)
    texts["/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/shared_cpu_list"] =
        std::to_string(cpu / 2 * 2) + "-" + std::to_string(cpu / 2 * 2 + 1);
  Machine machine;
  machine.files = std::make_shared<topo::detect::RecordedFiles>(std::move(texts), Answers{});
  const auto document =
      topo::parseXml("two", "<system version=\"1\"><cpu numaid=\"0\" affinity=\"f\"/><cpu numaid=\"1\" affinity=\"f0\"/></system>");
  machine.document = *document;
  return machine;
}

TEST(Place, TellsTheSizeOfTheLastLevelCache) {
  const auto sizeOf = [](const char* said) {
    Answers texts;
    texts["/sys/devices/system/cpu/cpu2/cache/index3/size"] = said;
    return cacheBytesOf(topo::detect::RecordedFiles(std::move(texts), Answers{}), cpus("2-3"));
  };
  EXPECT_EQ(sizeOf("32768K"), uint64_t{32} << 20);
  EXPECT_EQ(sizeOf("32768K\n"), uint64_t{32} << 20);
  for (const char* const no : {"", "K", "12", "12M", "-1K", "99999999999999999999K", "18014398509481984K"}) EXPECT_EQ(sizeOf(no), 0u) << no;
  EXPECT_EQ(cacheBytesOf(*test::noFiles(), cpus("0-3")), 0u);
  EXPECT_EQ(cacheBytesOf(*test::noFiles(), CpuSet()), 0u);
}

TEST(Place, IsWhatAllCpusOfTheThreadShare) {
  const Machine machine = twoNodes();
  EXPECT_EQ(placeOf(machine, cpus("0")), (Place{0, 0}));
  EXPECT_EQ(placeOf(machine, cpus("6-7")), (Place{1, 6}));
  EXPECT_EQ(placeOf(machine, cpus("1-2")), (Place{0, -1})) << "two caches";
  EXPECT_EQ(placeOf(machine, cpus("3-4")), (Place{-1, -1})) << "two NUMA nodes";
  EXPECT_EQ(placeOf(machine, cpus("0-7")), Place{});
  EXPECT_EQ(placeOf(machine, cpus("99")), Place{});
  EXPECT_EQ(placeOf(machine, CpuSet()), Place{});
}

TEST(Place, CachesAreListedOnce) {
  const Machine machine = twoNodes();
  const std::vector<CpuSet> caches = cachesOf(*machine.files, cpus("0-3,7"));
  ASSERT_EQ(caches.size(), 3u);
  EXPECT_EQ(caches[0], cpus("0-1"));
  EXPECT_EQ(caches[2], cpus("6-7"));
  EXPECT_TRUE(cachesOf(*test::noFiles(), cpus("0-3")).empty());
}

TEST(Place, AThreadIsNearForAScope) {
  const auto before = topo::detect::thisProcessMayUse();
  ASSERT_TRUE(before);
  CpuSet one;
  one.add(before->cpus().back());
  {
    const ThreadNear near(one);
    EXPECT_EQ(*topo::detect::thisProcessMayUse(), one);
  }
  EXPECT_EQ(*topo::detect::thisProcessMayUse(), *before);
  {
    const ThreadNear near(CpuSet{});
    EXPECT_EQ(*topo::detect::thisProcessMayUse(), *before);
  }
  CpuSet nowhere;
  nowhere.add(topo::kMostCpus - 1);
  {
    const ThreadNear near(nowhere);  // the system refuses
    EXPECT_EQ(*topo::detect::thisProcessMayUse(), *before);
  }
  EXPECT_EQ(*topo::detect::thisProcessMayUse(), *before);
}

}  // namespace
}  // namespace tutti::machine::place_test
