// Constants that `tutti tune` kept of this machine: ranks on GPUs of the fake driver choose by them, and say so.
#include "comm/constants.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "comm/device_rank.h"
#include "comm/settings.h"
#include "config/params.h"
#include "connect/layout.h"
#include "device_play.h"
#include "tune/store.h"

namespace tutti::comm::constants_test {
namespace {

class ConstantsTest : public testing::Test {
 protected:
  void SetUp() override {
    char made[] = "/tmp/tutti_constants_" "XX" "XX" "XX";
    ASSERT_NE(mkdtemp(made), nullptr);
    folder_ = made;
    setenv("NCCL_CONF_FILE", "/dev/null", 1);
    setenv("TUTTI_CACHE_DIR", made, 1);
    config::resetForTest();
  }
  void TearDown() override {
    (void)std::remove(path().c_str());
    (void)std::remove(folder_.c_str());
    setenv("TUTTI_CACHE_DIR", "none", 1);
    config::resetForTest();
  }
  std::string path() const { return tune::storedPath(folder_, tune::machineKey()); }
  void keep(const std::string& key) const {
    tune::Platform platform;
    platform.name = "measured here";
    platform.source = "a test";
    platform.key = key;
    platform.devices = tune::deviceMachine();
    platform.devices->launchUs = 1234;
    ASSERT_TRUE(tune::writeStored(folder_, platform).ok());
  }
  std::string folder_;
};

TEST_F(ConstantsTest, RanksOnGpusChooseByWhatWasKept) {
  keep(tune::machineKey());
  Constants constants;
  ASSERT_NE(constants.get(), nullptr);
  EXPECT_NE(constants.digest(), 0U);
  play::Gpus gpus;
  ASSERT_TRUE(*gpus.devices.useGpus());
  const auto device = gpus.devices.at(0);
  ASSERT_TRUE(device);
  Place place;
  place.ranks = 2;
  place.multiprocessors = 132;
  place.constants = constants.digest();
  const auto host = readSettings({}, constants.get());
  ASSERT_TRUE(host);
  EXPECT_EQ(host->constants, "host") << "nothing was measured of host devices";
  const auto settings = readDeviceSettings(*host, {}, place, (*device)->kernels, constants.get());
  ASSERT_TRUE(settings) << settings.error().text();
  EXPECT_EQ(settings->machine.launchUs, 1234);
  const connect::Layout layout = connect::Layout::natural(2);
  const auto hub = *transport::local::Hub::make(2);
  const auto rank = DeviceRank::open(hub, Rank(0), layout, *settings, true, gpus.devices, **device);
  ASSERT_TRUE(rank) << rank.error().text();
  EXPECT_EQ((*rank)->constants(), "measured here") << "as tuttiExplain says it";
}

TEST_F(ConstantsTest, SaysAtInfoWhichTheyAreAndWhereTheyLie) {
  keep(tune::machineKey());
  setenv("NCCL_DEBUG", "INFO", 1);
  config::resetForTest();
  Constants constants;
  testing::internal::CaptureStdout();
  constants.tellUse("host");
  constants.tellUse("measured here");
  const std::string said = testing::internal::GetCapturedStdout();
  unsetenv("NCCL_DEBUG");
  const size_t at = said.find("algorithms are chosen by the constants \"measured here\", measured on this machine: " + path());
  EXPECT_NE(at, std::string::npos) << said;
  EXPECT_EQ(said.find("algorithms are chosen", at + 1), std::string::npos) << "of the built-in ones, nothing is said: " << said;
}

TEST_F(ConstantsTest, OfAnotherMachineAreNone) {
  keep("other");
  ASSERT_EQ(rename(tune::storedPath(folder_, "other").c_str(), path().c_str()), 0);
  Constants constants;
  EXPECT_EQ(constants.get(), nullptr);
  EXPECT_EQ(constants.digest(), 0U);
}

}  // namespace
}  // namespace tutti::comm::constants_test
