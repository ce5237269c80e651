#include "topo/affinity.h"

#include <gtest/gtest.h>

#include "topo/data.h"
#include "topo/view.h"

namespace tutti::topo::affinity_test {
namespace {

TEST(CpuSets, MasksAreReadFromTheirEnd) {
  const auto set = CpuSet::fromMask("3,00000000,80000001");
  ASSERT_TRUE(set.has_value());
  EXPECT_EQ(set->list(), "0,31,64-65");
  EXPECT_EQ(set->mask(), "3,00000000,80000001");
  EXPECT_EQ(CpuSet::fromMask("f00000000f")->list(), "0-3,36-39") << "without commas";
  EXPECT_EQ(CpuSet::fromMask("1,f")->list(), "0-3,32") << "a short group is a whole word";
  EXPECT_TRUE(CpuSet::fromMask("0000,00000000")->empty());
  EXPECT_EQ(CpuSet::fromMask("0")->mask(), "0");
}

TEST(CpuSets, ListsAreWrittenAsTheyAreRead) {
  for (const char* text : {"", "0", "0-3,8", "5,7,9-65535"}) EXPECT_EQ(CpuSet::fromList(text)->list(), text);
  EXPECT_EQ(CpuSet::fromList("4-5,3")->list(), "3-5");
  EXPECT_EQ(CpuSet::fromList("0-31")->count(), 32);
  EXPECT_EQ(CpuSet::fromList("31-33")->mask(), "3,80000000");
}

TEST(CpuSets, SenselessTextsAreNoSets) {
  for (const char* text : {"", "g", "1,,2", ",1", "1,", "-1", "0x1", " 1"}) EXPECT_FALSE(CpuSet::fromMask(text).has_value()) << text;
  for (const char* text : {"3-1", "a", "1-", "-1", "65536", "0-4294967295", "99999999999", "1-2-3"}) {
    EXPECT_FALSE(CpuSet::fromList(text).has_value()) << text;
  }
  EXPECT_FALSE(CpuSet::fromMask(std::string(kMostCpus / 4 + 1, 'f')).has_value());
  EXPECT_EQ(CpuSet::fromMask(std::string(kMostCpus / 4, 'f'))->count(), kMostCpus);
}

TEST(CpuSets, WhatBothHave) {
  const CpuSet both = *CpuSet::fromList("0-40") & *CpuSet::fromList("8-9,39-100");
  EXPECT_EQ(both.list(), "8-9,39-40");
  EXPECT_EQ(*CpuSet::fromList("0,64") & *CpuSet::fromList("0,65"), *CpuSet::fromList("0")) << "equal sets are equal values";
  EXPECT_FALSE(both.has(-1));
  EXPECT_FALSE(both.has(1000000));
}

TEST(CpusForGpu, AreThoseOfItsNumaNodeThatAreAllowed) {
  const auto machine = readXml(test::ownFile("nvidia-dgx1v-v100x8"));
  ASSERT_TRUE(machine.has_value());
  auto view = makeView(*machine, *identicalNodes(*machine, 1, false, {}));
  ASSERT_TRUE(view.has_value());
  System& system = view->system;
  const NodeId near = system.all(NodeKind::Cpu).at(0);
  const NodeId far = system.all(NodeKind::Cpu).at(1);
  system.at(near).cpu.affinity = "0000000f";
  system.at(far).cpu.affinity = "000000f0";
  const auto cpus = [&](int rank, const char* allowed, bool ignore) {
    return cpusForGpu(system, view->paths, system.gpuOfRank(rank), *CpuSet::fromList(allowed), ignore).list();
  };
  EXPECT_EQ(cpus(0, "0-63", false), "0-3");
  EXPECT_EQ(cpus(7, "0-63", false), "4-7");
  EXPECT_EQ(cpus(0, "2-5", false), "2-3");
  EXPECT_EQ(cpus(0, "4-5", false), "") << "nothing near is allowed";
  EXPECT_EQ(cpus(0, "4-5", true), "0-3");
  for (const char* unknown : {"", "what"}) {
    system.at(near).cpu.affinity = unknown;
    EXPECT_EQ(cpus(0, "0-63", false), "");
  }
}

}  // namespace
}  // namespace tutti::topo::affinity_test
