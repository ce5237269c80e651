#include "topo/detect/machine.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "driver/cuda/fake.h"
#include "driver/nvml/fake.h"
#include "topo/detect/driver.h"
#include "topo/detect/tree.h"
#include "topo/host_devices.h"
#include "topo/view.h"

namespace tutti::topo::detect::machine_test {
namespace {

using Detected = test::Tree;

std::string xmlOf(const std::shared_ptr<const Files>& files, const MachineFacts& facts) {
  Document machine = emptyMachine();
  const Status status = complete(machine, Sysfs(files), facts);
  return status.ok() ? writeXml(machine.root) : status.text();
}

Result<Recording> again(const Element& recording) {
  const auto document = parseXml("recording.xml", writeXml(recording));
  if (!document) return tl::unexpected(document.error());
  return readRecording(*document);
}

TEST_F(Detected, IsTheSameMachineFromItsRecording) {
  build();
  write("sys/devices/system/node/online", "0-2\n");
  NetFacts nic = net("/sys/class/net/eth0/device");
  nic.guid = 0xec0d9a0300112233;
  nic.latencyUs = 1.7F;
  makeFolders("sys/class/net/eth0");
  const std::string device = "../../../devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:13:00.0";
  ASSERT_EQ(symlink(device.c_str(), (root_ + "/sys/class/net/eth0/device").c_str()), 0);
  MachineFacts facts{.gpus = {gpu("0000:14:00.0", 1), gpu("0000:01:00.0", 0)}, .nets = {nic, net("")}, .allowed = *CpuSet::fromList("1-9")};
  facts.nets[1].name = "virtual";
  facts.gpus[0].nvlinks = {{.target = "0000:01:00.0", .count = 4, .pciClass = ""},
                           {.target = "fffffff:ff:ff.0", .count = 2, .pciClass = ""}};
  facts.gpus[0].c2cLinks = 1;
  facts.gpus[0].c2cMBps = 1000;
  hideGuids(facts);

  const auto files = std::make_shared<RecordingFiles>(std::make_shared<RootFiles>(root_));
  const std::string expected = xmlOf(files, facts);
  ASSERT_TRUE(expected.starts_with("<system")) << expected;
  EXPECT_NE(expected.find("numaid=\"2\""), std::string::npos) << "a NUMA node without devices";
  EXPECT_NE(expected.find("busid=\"0000:13:00.0\""), std::string::npos) << "the net's device";
  const Element recording = writeRecording(facts, *files);
  const std::string text = writeXml(recording);
  for (const std::string& kept : {root_, std::string("EPYC"), std::string("ec0d9a03")})
    EXPECT_EQ(text.find(kept), std::string::npos) << text;

  const auto replayed = again(recording);
  ASSERT_TRUE(replayed.has_value()) << replayed.error().text();
  EXPECT_EQ(xmlOf(replayed->files, replayed->facts), expected);
  EXPECT_EQ(replayed->facts.allowed.list(), "1-9");
  // And the recording of a replay is the recording.
  const auto twice = std::make_shared<RecordingFiles>(replayed->files);
  xmlOf(twice, replayed->facts);
  EXPECT_EQ(writeXml(writeRecording(replayed->facts, *twice)), text);
}

TEST_F(Detected, LinksOutOfARecordedTreeLeadNowhere) {
  makeFolders("sys/class/net/eth0");
  ASSERT_EQ(symlink("/proc/self", (root_ + "/sys/class/net/eth0/device").c_str()), 0);
  EXPECT_EQ(RootFiles(root_).resolve("/sys/class/net/eth0/device"), std::nullopt);
  EXPECT_EQ(RootFiles().resolve("/proc/self/.."), "/proc");
}

TEST(Recordings, OfAVirtualMachineWithoutGpusHasItsCpusAndItsNet) {
  const auto document = readXml(TUTTI_SOURCE_DIR "/tests/data/recordings/vm-amd-2cpus.xml");
  ASSERT_TRUE(document.has_value()) << document.error().text();
  const auto recording = readRecording(*document);
  ASSERT_TRUE(recording.has_value()) << recording.error().text();
  EXPECT_EQ(recording->facts.allowed.list(), "0-1");
  EXPECT_EQ(xmlOf(recording->files, recording->facts),
            R"(<system version="1">
  <cpu numaid="0" affinity="3" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <nic>
      <net name="eth0" dev="0" latency="0" speed="10000" port="0" guid="0x1" maxconn="65536" gdr="0"/>
    </nic>
  </cpu>
</system>
)");
}

/// Two sockets of two NUMA nodes each, numbered in turns: the NIC hangs at its own, memory and distances are said of each.
TEST(Recordings, OfSeveralNumaNodesHaveMemoryAndDistances) {
  for (const auto& [name, nodes] : {std::pair{"two-sockets-2numa", 2}, std::pair{"two-sockets-4numa", 4}}) {
    const auto document = readXml(format("{}/tests/data/recordings/{}.xml", TUTTI_SOURCE_DIR, name));
    ASSERT_TRUE(document.has_value()) << document.error().text();
    const auto recording = readRecording(*document);
    ASSERT_TRUE(recording.has_value()) << recording.error().text();
    Document machine = emptyMachine();
    const Sysfs sysfs(recording->files);
    ASSERT_TRUE(complete(machine, sysfs, recording->facts).ok());
    EXPECT_EQ(writeXml(machine.root).find("memory="), std::string::npos) << "it may grow at run time: no part of what ranks compare";
    addMemory(machine, sysfs);
    const auto devices = spreadHostDevices(machine, 2 * nodes, recording->facts.allowed);
    ASSERT_TRUE(devices) << devices.error().text();
    ASSERT_TRUE(addHostDevices(machine, *devices).ok());
    const auto view = makeHostView(machine);
    ASSERT_TRUE(view) << view.error().text();
    const System& system = view->system;
    ASSERT_EQ(system.count(NodeKind::Cpu), nodes);
    ASSERT_EQ(system.count(NodeKind::Net), 1);
    const NodeId net = system.all(NodeKind::Net)[0];
    for (const NodeId device : system.all(NodeKind::Host)) {
      const bool isNear = system.at(device).host.rank / 2 == 1;
      EXPECT_EQ(view->paths.get(device, net).type, isNear ? PathType::Phb : PathType::Sys);
      EXPECT_FLOAT_EQ(view->paths.get(device, net).GBps, 3.125F);
    }
    for (const NodeId cpu : system.all(NodeKind::Cpu)) {
      const CpuInfo& info = system.at(cpu).cpu;
      ASSERT_EQ(info.distances.size(), static_cast<size_t>(nodes));
      const int own = static_cast<int>(localIdOf(system.at(cpu).id));
      EXPECT_EQ(info.distances[static_cast<size_t>(own)].distance, 10);
      EXPECT_EQ(info.memoryMiB, nodes == 4 && own == 3 ? 16384 : nodes == 4 ? 32768 : 65536);
    }
    if (nodes < 4) continue;
    EXPECT_EQ(orderNumaNodes(machine, std::vector<int32_t>{0, 1, 2, 3}), (std::vector<int32_t>{0, 1, 3, 2}));
  }
}

TEST_F(Detected, WhatTheKernelSaysOfNumaNodesIsReadAsFarAsItMakesSense) {
  write("sys/devices/system/node/online", "0-1\n");
  write("sys/devices/system/node/node0/distance", "10 21\n");
  write("sys/devices/system/node/node1/distance", "21\n");  // one is missing
  write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       32841940 kB\nNode 0 MemFree:        1 kB\n");
  write("sys/devices/system/node/node1/meminfo", "Node 1 MemFree:        1 kB\n");
  const Sysfs sysfs(root_);
  EXPECT_EQ(sysfs.distances(0), "0:10,1:21");
  EXPECT_EQ(sysfs.distances(1), std::nullopt);
  EXPECT_EQ(sysfs.distances(2), std::nullopt);
  EXPECT_EQ(sysfs.memoryMiB(0), 32072);
  EXPECT_EQ(sysfs.memoryMiB(1), std::nullopt);
  EXPECT_EQ(RootFiles(root_).text("/sys/devices/system/node/node0/meminfo"), "MemTotal:       32841940 kB")
      << "what is used is nobody's business";
}

TEST(Recordings, GuidsAreHiddenButEqualOnesStayEqual) {
  MachineFacts facts;
  for (const uint64_t guid : {0xabcU, 7U, 0xabcU, 0U}) facts.nets.emplace_back().guid = guid;
  hideGuids(facts);
  EXPECT_EQ(facts.nets[0].guid, facts.nets[2].guid);
  EXPECT_EQ(facts.nets[0].guid, 1u);
  EXPECT_EQ(facts.nets[1].guid, 2u);
  EXPECT_EQ(facts.nets[3].guid, 3u);
}

TEST(Recordings, SenselessOnesAreRefusedWithTheirPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"<system version=\"1\"/>", "expected <recording"},
      {"<recording/>", "version"},
      {"<recording version=\"2\"/>", "version"},
      {"<recording version=\"1\">\n<disk/></recording>", "r.xml:2: <disk>: expected <process>"},
      {"<recording version=\"1\">\n<process cpus=\"9-1\"/></recording>", "a list of CPUs"},
      {"<recording version=\"1\"><gpu busid=\"0000:01:00.0\" dev=\"-1\"/></recording>", "dev"},
      {"<recording version=\"1\"><gpu dev=\"0\"/></recording>", "busid"},
      {"<recording version=\"1\"><net name=\"a\" path=\"\" dev=\"0\" speed=\"fast\"/></recording>", "fast"},
      {"<recording version=\"1\"><file><line text=\"\"/></file></recording>", "path"},
      {"<recording version=\"1\"><file path=\"/a\"><line/></file></recording>", "text"},
      {"<recording version=\"1\"><file path=\"/a\"/><file path=\"/a\"/></recording>", "not there already"},
  };
  for (const auto& [text, words] : cases) {
    const auto document = parseXml("r.xml", text);
    ASSERT_TRUE(document.has_value()) << text;
    const auto recording = readRecording(*document);
    ASSERT_FALSE(recording.has_value()) << text;
    EXPECT_NE(recording.error().text().find(words), std::string::npos) << recording.error().text();
  }
}

TEST(Machines, WithoutNumaHaveOneCpuOfAllThatAreOnline) {
  const auto files = std::make_shared<RecordedFiles>(Answers{{"/sys/devices/system/cpu/online", "0-4"}}, Answers{});
  EXPECT_EQ(xmlOf(files, {}), "<system version=\"1\">\n  <cpu numaid=\"0\" affinity=\"1f\"/>\n</system>\n");
}

TEST(Machines, GpusAreWhatCudaShowsAndNvmlCounts) {
  namespace cuda = driver::cuda;
  namespace nvml = driver::nvml;
  auto fake = std::make_unique<cuda::FakeApi>(cuda::FakeOptions{.devices = 2});
  cuda::FakeApi* failing = fake.get();
  cuda::Driver driver(std::move(fake));
  ASSERT_TRUE(driver.init().ok());
  const std::string first = driver.describe(0)->pciBusId;
  const std::string second = driver.describe(1)->pciBusId;
  const auto alone = askDrivers(driver, nullptr);
  ASSERT_TRUE(alone.has_value()) << alone.error().text();
  ASSERT_EQ(alone->size(), 2u);
  EXPECT_EQ((*alone)[1].busId, second);
  EXPECT_EQ((*alone)[1].dev, 1);
  EXPECT_TRUE((*alone)[1].gdr);
  EXPECT_GE((*alone)[1].sm, 70);

  // NVML counts them the other way round, and a third one before them.
  auto known = nvml::Nvml::start(std::make_unique<nvml::FakeApi>(std::vector<nvml::FakeDevice>{
      {.busId = "0000:99:00.0", .links = {}, .fabric = std::nullopt},
      {.busId = second, .links = {first, first}, .fabric = std::nullopt},
      {.busId = first, .links = {second, second}, .fabric = std::nullopt}}));
  ASSERT_TRUE(known.has_value());
  const auto both = askDrivers(driver, known->get());
  ASSERT_TRUE(both.has_value()) << both.error().text();
  EXPECT_EQ((*both)[0].busId, first);
  EXPECT_EQ((*both)[0].dev, 2);
  EXPECT_EQ((*both)[1].nvlinks.at(0).count, 2);
  failing->failAt(1);
  EXPECT_FALSE(askDrivers(driver, nullptr).has_value());
}

TEST(ThisProcess, MayUseWhatItsAffinityLeaves) {
  std::thread([] {
    const auto before = thisProcessMayUse();
    ASSERT_TRUE(before.has_value()) << before.error().text();
    ASSERT_FALSE(before->empty());
    const int last = before->cpus().back();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(last), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(thisProcessMayUse()->cpus(), std::vector<int>{last});
  }).join();
}

}  // namespace
}  // namespace tutti::topo::detect::machine_test
