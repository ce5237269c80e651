#include "machine/survey.h"

#include "driver/cuda/fake.h"
#include "driver/nvml/fake.h"
#include "machine/played.h"

namespace tutti::machine::survey_test {
namespace {

using driver::cuda::Driver;
using driver::nvml::FakeDevice;
using topo::detect::Answers;

std::unique_ptr<Driver> fakeCuda(int devices) {
  auto driver = std::make_unique<Driver>(std::make_unique<driver::cuda::FakeApi>(driver::cuda::FakeOptions{.devices = devices}));
  EXPECT_TRUE(driver->init().ok());
  return driver;
}

std::string busIdOf(Driver& cuda, int ordinal) { return cuda.describe(ordinal)->pciBusId; }

Sources sourcesOf(Driver* cuda, std::vector<FakeDevice> devices) {
  return {.cuda = cuda,
          .openNvml = [devices]() -> Result<std::unique_ptr<driver::nvml::Api>> {
            if (devices.empty()) return fail(Code::SystemError, "no such library");
            return std::unique_ptr<driver::nvml::Api>(std::make_unique<driver::nvml::FakeApi>(devices));
          },
          .files = test::noFiles(),
          .topoFile = ""};
}

/// Two processes of a host, each with other GPUs before its eyes, see the same machine.
TEST(Survey, IsTheSameWhicheverGpusTheProcessMayUse) {
  const auto all = fakeCuda(4);
  std::vector<FakeDevice> devices;
  for (int i = 0; i < 4; ++i) devices.push_back({.busId = busIdOf(*all, i), .links = {"0000:a1:00.0"}, .fabric = std::nullopt});
  const auto some = fakeCuda(2);
  for (FakeDevice& device : devices) device.sm = some->describe(0)->major * 10 + some->describe(0)->minor;
  const auto whole = survey(sourcesOf(all.get(), devices));
  const auto part = survey(sourcesOf(some.get(), devices));
  ASSERT_TRUE(whole) << whole.error().text();
  ASSERT_TRUE(part) << part.error().text();
  EXPECT_EQ(whole->gpus.size(), 4u);
  EXPECT_EQ(part->gpus.size(), 4u);
  EXPECT_EQ(whole->hash, part->hash);
  EXPECT_EQ(devOf(*part, busIdOf(*all, 3)), 3);
  EXPECT_EQ(devOf(*part, "0000:ff:00.0"), std::nullopt);
  const auto blind = survey(sourcesOf(some.get(), {}));
  ASSERT_TRUE(blind) << blind.error().text();
  EXPECT_EQ(blind->gpus.size(), 2u);
  ASSERT_EQ(blind->notes.size(), 1u);
  EXPECT_NE(blind->notes[0].find("no such library"), std::string::npos);
  EXPECT_NE(blind->hash, whole->hash);
}

TEST(Survey, AFileComesFirstAndDetectionCompletesIt) {
  const auto cuda = fakeCuda(2);
  Sources sources = sourcesOf(cuda.get(), {});
  const std::string busId = busIdOf(*cuda, 0);
  sources.files = std::make_shared<topo::detect::RecordedFiles>(
      Answers{{kVirtualTopology, "<system version=\"1\"><cpu numaid=\"3\" affinity=\"ff\"><pci busid=\"" + busId +
                                     "\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"/></cpu></system>"}},
      Answers{});
  const auto machine = survey(sources);
  ASSERT_TRUE(machine) << machine.error().text();
  const std::string text = topo::writeXml(machine->document.root);
  EXPECT_NE(text.find("numaid=\"3\""), std::string::npos) << text;
  EXPECT_NE(text.find("32.0 GT/s"), std::string::npos);
  EXPECT_EQ(devOf(*machine, busId), 0);
  EXPECT_EQ(devOf(*machine, busIdOf(*cuda, 1)), 1) << "the file lacks it";
}

TEST(Survey, RefusesFilesThatMakeNoSense) {
  for (const char* text : {"<machine version=\"1\"/>", "<system version=\"3\"/>", "<system"}) {
    Sources sources = sourcesOf(nullptr, {});
    sources.files = std::make_shared<topo::detect::RecordedFiles>(Answers{{kVirtualTopology, text}}, Answers{});
    const auto machine = survey(sources);
    ASSERT_FALSE(machine) << text;
    EXPECT_NE(machine.error().text().find(kVirtualTopology), std::string::npos) << machine.error().text();
  }
  Sources sources = sourcesOf(nullptr, {});
  sources.topoFile = "/no/such/topology.xml";
  EXPECT_FALSE(survey(sources));
}

}  // namespace
}  // namespace tutti::machine::survey_test
