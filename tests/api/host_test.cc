// Host devices, and what tutti.h tells of a communicator.
#include <climits>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "api/api_fixture.h"

namespace tutti::api_test::host_test {
namespace {

TEST(HostDevices, ChoiceOfTheThread) {
  int device = 5, count = 0;
  EXPECT_TRUE(refused(tuttiGetHostDevice(nullptr), ncclInvalidArgument, {"device", "NULL"}));
  EXPECT_TRUE(refused(tuttiGetHostDeviceCount(nullptr), ncclInvalidArgument, {"count", "NULL"}));
  ASSERT_EQ(tuttiGetHostDeviceCount(&count), ok);
  EXPECT_GE(count, 1);
  std::thread([&] {
    EXPECT_EQ(tuttiGetHostDevice(&device), ok);
    EXPECT_EQ(device, -1) << "a thread that never chose";
    EXPECT_EQ(tuttiSetHostDevice(count - 1), ok);
    for (const int bad : {-1, count, INT_MAX, INT_MIN})
      EXPECT_TRUE(refused(tuttiSetHostDevice(bad), ncclInvalidArgument, {"device", std::to_string(bad)}));
    EXPECT_EQ(tuttiGetHostDevice(&device), ok);
    EXPECT_EQ(device, count - 1);
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclGetUniqueId(&id), ok);
    ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ok);
    EXPECT_EQ(ncclCommCuDevice(comm, &device), ok);
    EXPECT_EQ(device, count - 1);
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  }).join();
}

class Texts : public Pair {};

TEST_F(Texts, ExplainArgumentsAndCapacity) {
  char text[8000];
  size_t needed = 0;
  ASSERT_EQ(tuttiExplain(comms[0], "all_reduce", 100, ncclFloat, ncclSum, 0, nullptr, 0, &needed), ok) << ncclGetLastError(nullptr);
  ASSERT_GT(needed, 20u);
  ASSERT_LE(needed, sizeof text);
  ASSERT_EQ(tuttiExplain(comms[0], "all_reduce", 100, ncclFloat, ncclSum, 0, text, sizeof text, nullptr), ok);
  EXPECT_EQ(std::strlen(text) + 1, needed);
  char cut[10];
  std::memset(cut, 'z', sizeof cut);
  size_t again = 0;
  EXPECT_EQ(tuttiExplain(comms[0], "all_reduce", 100, ncclFloat, ncclSum, 0, cut, 5, &again), ok);
  EXPECT_EQ(again, needed);
  EXPECT_EQ(std::string(cut), std::string(text, 4));
  EXPECT_EQ(cut[5], 'z');
  EXPECT_TRUE(
      refused(tuttiExplain(comms[0], "all_reduce", 1, ncclFloat, ncclSum, 0, nullptr, 7, nullptr), ncclInvalidArgument, {"text", "NULL"}));
  EXPECT_TRUE(
      refused(tuttiExplain(comms[0], nullptr, 1, ncclFloat, ncclSum, 0, text, 9, nullptr), ncclInvalidArgument, {"collective", "NULL"}));
  EXPECT_TRUE(refused(tuttiExplain(comms[0], "allreduce", 1, ncclFloat, ncclSum, 0, text, 9, nullptr), ncclInvalidArgument,
                      {"allreduce", "all_reduce"}));
  EXPECT_TRUE(refused(tuttiExplain(comms[0], "broadcast", 1, ncclFloat, ncclSum, 2, text, 9, nullptr), ncclInvalidArgument, {"root", "2"}));
  EXPECT_TRUE(refused(tuttiExplain(comms[0], "send", 1, ncclFloat, ncclSum, 2, text, 9, nullptr), ncclInvalidArgument, {"peer", "2"}));
  EXPECT_TRUE(refused(tuttiExplain(nullptr, "send", 1, ncclFloat, ncclSum, 1, text, 9, nullptr), ncclInvalidArgument, {"comm", "NULL"}));
  for (const char* name :
       {"all_reduce", "reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all", "gather", "scatter", "send", "recv"}) {
    ASSERT_EQ(tuttiExplain(comms[0], name, 12, ncclInt, ncclSum, 1, text, sizeof text, nullptr), ok)
        << name << ": " << ncclGetLastError(nullptr);
    for (const char* key :
         {"collective", "algorithm", "channels", "lanes", "slices", "slots", "sliceBytes", "bytesRead", "bytesWritten", "steps", "simd",
          "kernel", "protocol", "bytes", "ranks", "nodes", "constants", "estimatedUs", "parts", "rejected"})
      EXPECT_NE(std::string_view(text).find('"' + std::string(key) + "\":"), std::string_view::npos) << key << " in " << text;
  }
  expectUsable();
}

TEST_F(Texts, HostDevicesHaveNoMemoryOfGpus) {
  char text[8] = {};
  size_t needed = 0;
  EXPECT_EQ(tuttiCommGetMemory(comms[0], text, sizeof text, &needed), ok);
  EXPECT_STREQ(text, "null");
  EXPECT_EQ(needed, 5u);
  EXPECT_EQ(tuttiCommGetMemory(comms[0], nullptr, 3, nullptr), ncclInvalidArgument);
  EXPECT_EQ(tuttiCommGetMemory(nullptr, text, sizeof text, nullptr), ncclInvalidArgument);
}

TEST_F(Texts, FlightRecorderTellsOfTheLatestCalls) {
  expectUsable();
  size_t needed = 0;
  ASSERT_EQ(tuttiReadFlightRecorder(comms[0], nullptr, 0, &needed), ok);
  std::string text(needed + 1000, '\0');
  ASSERT_EQ(tuttiReadFlightRecorder(comms[0], text.data(), text.size(), nullptr), ok);
  EXPECT_NE(text.find("AllReduce"), std::string::npos) << text;
  EXPECT_EQ(text.front(), '[');
  EXPECT_TRUE(refused(tuttiReadFlightRecorder(nullptr, text.data(), 5, nullptr), ncclInvalidArgument, {"comm", "NULL"}));
}

}  // namespace
}  // namespace tutti::api_test::host_test
