#include "transport/plugin/versions.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace tutti::transport::plugin::versions_test {
namespace {

TEST(Versions, AreSearchedNewestFirst) {
  ASSERT_EQ(versions().size(), 4U);
  int expected = 11;
  for (const Version& version : versions()) {
    EXPECT_EQ(version.number, expected);
    EXPECT_EQ(std::string(version.symbol), "ncclNetPlugin_v" + std::to_string(expected));
    EXPECT_EQ(version.initPerComm, expected == 11);
    EXPECT_EQ(version.tellsTraffic, expected >= 10);
    EXPECT_EQ(version.maxMessageBytes, expected == 8 ? uint64_t{1} << 30 : uint64_t{1} << 40) << "sizes of version 8 are ints";
    --expected;
  }
}

const Version& of(int number) { return versions()[static_cast<size_t>(11 - number)]; }

char gName[] = "nic";
size_t gSize = 0;
int gTag = 0;

int propertiesV8(int /*device*/, abi::PropertiesV8* p) {
  *p = {};
  p->name = gName;
  p->regIsGlobal = 1;
  p->speed = 100;
  p->latency = 2.5F;
  p->maxRecvs = 8;
  p->netDeviceVersion = 3;
  return 0;
}

TEST(Versions, OldPropertiesGetDefaultsForWhatTheyLack) {
  abi::NetV8 net{};
  net.getProperties = propertiesV8;
  abi::PropertiesV11 p{};
  ASSERT_EQ(of(8).getProperties(&net, 4, &p), 0);
  EXPECT_STREQ(p.name, "nic");
  EXPECT_EQ(p.regIsGlobal, 1);
  EXPECT_EQ(p.speed, 100);
  EXPECT_EQ(p.latency, 2.5F);
  EXPECT_EQ(p.maxRecvs, 8);
  EXPECT_EQ(p.netDeviceVersion, 3);
  EXPECT_EQ(p.forceFlush, 0);
  EXPECT_EQ(p.vProps.ndevs, 1);
  EXPECT_EQ(p.vProps.devs[0], 4);
  EXPECT_EQ(p.maxP2pBytes, size_t{1} << 30);
  EXPECT_EQ(p.maxMultiRequestSize, 1);
}

int irecvV8(void* /*comm*/, int n, void** data, int* sizes, int* tags, void** /*keys*/, void** request) {
  gSize = static_cast<size_t>(sizes[0]);
  gTag = tags[0];
  *request = data[0];
  return n == 1 ? 0 : 4;
}

TEST(Versions, SizesOfVersion8AreInts) {
  abi::NetV8 net{};
  net.irecv = irecvV8;
  std::byte room{};
  void* request = nullptr;
  ASSERT_EQ(of(8).irecv(&net, nullptr, &room, 1'000'000'000, 17, nullptr, &request), 0);
  EXPECT_EQ(gSize, 1'000'000'000U);
  EXPECT_EQ(gTag, 17);
  EXPECT_EQ(request, &room);
}

int connectV10(int device, abi::CommConfig* config, void* /*handle*/, void** comm, void** deviceHandle) {
  *comm = deviceHandle != nullptr && config != nullptr && config->trafficClass == 5 && device == 2 ? &gName : nullptr;
  return 0;
}

TEST(Versions, ConnectOfVersion10TakesAConfiguration) {
  abi::NetV10 net{};
  net.connect = connectV10;
  void* comm = nullptr;
  ASSERT_EQ(of(10).connect(&net, nullptr, 2, 5, nullptr, &comm), 0);
  EXPECT_EQ(comm, &gName);
}

int initV11(void** context, uint64_t commId, abi::CommConfig* config, abi::Logger /*log*/, abi::Profiler profiler) {
  *context = &gName;
  return commId == 99 && config != nullptr && config->trafficClass == 7 && profiler != nullptr &&
                 profiler(nullptr, 0, nullptr, 0, nullptr) == 0
             ? 0
             : 4;
}

TEST(Versions, Version11HasAContextForEachCommunicator) {
  abi::NetV11 net{};
  net.init = initV11;
  void* context = nullptr;
  EXPECT_EQ(of(11).init(&net, &context, {99, 7}, nullptr), 0);
  EXPECT_EQ(context, &gName);
  EXPECT_EQ(of(11).finalize(&net, context), 0) << "a finalize that is not there is no error";
}

TEST(Versions, AStructWithHolesIsNotComplete) {
  const abi::NetV11 net{};
  EXPECT_FALSE(of(11).complete(&net));
  EXPECT_FALSE(of(8).complete(&net));
}

}  // namespace
}  // namespace tutti::transport::plugin::versions_test
