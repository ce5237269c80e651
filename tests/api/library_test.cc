// Version and texts, created operators, memory, registration, host devices, and what is not built yet.
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "api/api_fixture.h"
#include "nccl_device.h"

namespace tutti::api_test {
namespace {

TEST(Library, Version) {
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ok);
  EXPECT_EQ(version, 22809);
  EXPECT_TRUE(refused(ncclGetVersion(nullptr), ncclInvalidArgument, {"version", "NULL"}));
  EXPECT_EQ(tuttiVersion(), TUTTI_VERSION_CODE);
  EXPECT_STREQ(tuttiVersionString(), "0.1.0");
}

TEST(Library, ErrorStrings) {
  const char* const texts[] = {"no error",
                               "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                               "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                               "internal error - please report this issue to the NCCL developers",
                               "invalid argument (run with NCCL_DEBUG=WARN for details)",
                               "invalid usage (run with NCCL_DEBUG=WARN for details)",
                               "remote process exited or there was a network error",
                               "NCCL operation in progress"};
  for (int code = 0; code < 8; ++code) EXPECT_STREQ(ncclGetErrorString(enumOf<ncclResult_t>(code)), texts[code]);
  for (const int code : {-1, 8, 9, 1000, INT_MAX, INT_MIN}) {
    EXPECT_STREQ(ncclGetErrorString(enumOf<ncclResult_t>(code)), "unknown result code");
  }
}

TEST(Library, LastErrorIsNeverNullAndFitsItsBuffer) {
  ASSERT_NE(ncclGetLastError(nullptr), nullptr);
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
  const std::string first = ncclGetLastError(nullptr);
  EXPECT_FALSE(first.empty());
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ok);
  EXPECT_EQ(ncclGetLastError(nullptr), first) << "success does not clear it";
  EXPECT_EQ(ncclGetLastError(reinterpret_cast<ncclComm_t>(0x77)), first) << "comm is not looked at";
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ok);
  const std::string endless(100000, 'x');
  EXPECT_EQ(tuttiExplain(comm, endless.c_str(), 1, ncclInt, ncclSum, 0, nullptr, 0, nullptr), ncclInvalidArgument);
  EXPECT_LT(std::strlen(ncclGetLastError(nullptr)), 1024u);
  EXPECT_EQ(ncclCommDestroy(comm), ok);
}

class Operators : public Pair {
 protected:
  float scalar_ = 3;
};

TEST_F(Operators, CreateArguments) {
  ncclRedOp_t op;
  EXPECT_TRUE(
      refused(ncclRedOpCreatePreMulSum(&op, &scalar_, ncclFloat, ncclScalarHostImmediate, nullptr), ncclInvalidArgument, {"comm", "NULL"}));
  EXPECT_TRUE(refused(ncclRedOpCreatePreMulSum(nullptr, &scalar_, ncclFloat, ncclScalarHostImmediate, comms[0]), ncclInvalidArgument,
                      {"op", "NULL"}));
  EXPECT_TRUE(refused(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat, ncclScalarHostImmediate, comms[0]), ncclInvalidArgument,
                      {"scalar", "NULL"}));
  for (const int type : {-1, 12, 99})
    EXPECT_TRUE(refused(ncclRedOpCreatePreMulSum(&op, &scalar_, enumOf<ncclDataType_t>(type), ncclScalarHostImmediate, comms[0]),
                        ncclInternalError, {"datatype", std::to_string(type)}));
  for (const int residence : {-1, 2})
    EXPECT_TRUE(refused(ncclRedOpCreatePreMulSum(&op, &scalar_, ncclFloat, enumOf<ncclScalarResidence_t>(residence), comms[0]),
                        ncclInvalidArgument, {"residence", std::to_string(residence)}));
  expectUsable();
}

TEST_F(Operators, AreBoundToCommunicatorTypeAndLife) {
  ncclRedOp_t op;
  ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar_, ncclFloat, ncclScalarHostImmediate, comms[0]), ok);
  EXPECT_GE(op, ncclNumOps);
  EXPECT_LE(op, ncclMaxRedOp);
  float x = 1;
  EXPECT_TRUE(refused(ncclAllReduce(&x, &x, 1, ncclFloat, op, comms[1], nullptr), ncclInvalidArgument, {"op", std::to_string(op)}));
  EXPECT_TRUE(refused(ncclAllReduce(&x, &x, 1, ncclDouble, op, comms[0], nullptr), ncclInvalidArgument, {"op", "float", "double"}));
  EXPECT_TRUE(refused(ncclRedOpDestroy(op, comms[1]), ncclInvalidArgument, {"op", std::to_string(op)}));
  EXPECT_TRUE(refused(ncclRedOpDestroy(op, nullptr), ncclInvalidArgument, {"comm", "NULL"}));
  EXPECT_EQ(ncclRedOpDestroy(op, comms[0]), ok);
  EXPECT_TRUE(refused(ncclRedOpDestroy(op, comms[0]), ncclInvalidArgument, {"op", "destroyed"}));
  EXPECT_TRUE(refused(ncclAllReduce(&x, &x, 1, ncclFloat, op, comms[0], nullptr), ncclInvalidArgument, {"op"}));
  for (int builtIn = 0; builtIn < 5; ++builtIn)
    EXPECT_TRUE(refused(ncclRedOpDestroy(enumOf<ncclRedOp_t>(builtIn), comms[0]), ncclInvalidArgument, {"op", std::to_string(builtIn)}));
  for (const int none : {-1, 5, 6, INT_MAX, INT_MIN})
    EXPECT_TRUE(refused(ncclRedOpDestroy(enumOf<ncclRedOp_t>(none), comms[0]), ncclInvalidArgument, {"op", std::to_string(none)}));
  expectUsable();
}

TEST_F(Operators, MayBeDestroyedRightAfterTheCallWasIssued) {
  float x[2] = {1, 10};
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = 0; r < 2; ++r) {
    ncclRedOp_t op;
    float scalar = 2;
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, comms[r]), ok);
    scalar = 1000;
    ASSERT_EQ(ncclAllReduce(&x[r], &x[r], 1, ncclFloat, op, comms[r], nullptr), ok) << ncclGetLastError(nullptr);
    ASSERT_EQ(ncclRedOpDestroy(op, comms[r]), ok);
  }
  ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
  EXPECT_EQ(x[0], 22.0F);
  EXPECT_EQ(x[1], 22.0F);
}

TEST_F(Operators, HandlesAreNotReused) {
  ncclRedOp_t first, second;
  ASSERT_EQ(ncclRedOpCreatePreMulSum(&first, &scalar_, ncclFloat, ncclScalarHostImmediate, comms[0]), ok);
  ASSERT_EQ(ncclRedOpDestroy(first, comms[0]), ok);
  ASSERT_EQ(ncclRedOpCreatePreMulSum(&second, &scalar_, ncclFloat, ncclScalarHostImmediate, comms[0]), ok);
  EXPECT_NE(first, second) << "a stale handle must not mean another operator";
  EXPECT_EQ(ncclRedOpDestroy(second, comms[0]), ok);
}

TEST(Memory, AllocAndFree) {
  EXPECT_TRUE(refused(ncclMemAlloc(nullptr, 1), ncclUnhandledCudaError, {"ptr", "NULL"}));
  void* pointer = &pointer;
  EXPECT_EQ(ncclMemAlloc(&pointer, 0), ok);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(ncclMemFree(nullptr), ok);
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{5000001}}) {
    ASSERT_EQ(ncclMemAlloc(&pointer, size), ok) << ncclGetLastError(nullptr);
    ASSERT_NE(pointer, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % 4096, 0u);
    std::memset(pointer, 0x11, size);
    EXPECT_TRUE(refused(ncclMemFree(static_cast<char*>(pointer) + 1), ncclUnhandledCudaError, {"ptr"}));
    EXPECT_EQ(ncclMemFree(pointer), ok);
    EXPECT_TRUE(refused(ncclMemFree(pointer), ncclUnhandledCudaError, {"ptr"}));
  }
  int local = 0;
  EXPECT_TRUE(refused(ncclMemFree(&local), ncclUnhandledCudaError, {"ptr"}));
  const ncclResult_t tooMuch = ncclMemAlloc(&pointer, SIZE_MAX);
  EXPECT_NE(tooMuch, ok);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_STRNE(ncclGetLastError(nullptr), "");
}

class Registration : public Pair {};

TEST_F(Registration, IsAHintThatSucceeds) {
  char buffer[64];
  void* handle = buffer;
  EXPECT_EQ(ncclCommRegister(comms[0], buffer, sizeof buffer, &handle), ok);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(ncclCommRegister(comms[0], nullptr, 0, &handle), ok);
  EXPECT_EQ(ncclCommDeregister(comms[0], nullptr), ok);
  EXPECT_TRUE(refused(ncclCommRegister(nullptr, buffer, sizeof buffer, &handle), ncclInvalidArgument, {"comm", "NULL"}));
  EXPECT_TRUE(refused(ncclCommDeregister(comms[0], buffer), ncclInvalidUsage, {"handle"}));
  EXPECT_TRUE(refused(ncclCommDeregister(nullptr, nullptr), ncclInvalidArgument, {"comm", "NULL"}));
  expectUsable();
}

// What is declared but not built: an error that says what is missing and what to use instead, and the communicator stays usable.
TEST_F(Registration, WhatIsNotBuiltSaysSo) {
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 8192), ok);
  ncclWindow_t window = reinterpret_cast<ncclWindow_t>(0x99);
  EXPECT_EQ(ncclCommWindowRegister(comms[0], nullptr, 8, &window, 0), ok);
  EXPECT_EQ(ncclCommWindowRegister(comms[0], memory, 0, &window, 0), ok);
  EXPECT_EQ(window, reinterpret_cast<ncclWindow_t>(0x99)) << "untouched";
  EXPECT_TRUE(refused(ncclCommWindowRegister(comms[0], static_cast<char*>(memory) + 8, 4096, &window, 0), ncclInvalidArgument, {"4096"}));
  EXPECT_EQ(window, nullptr);
  const std::initializer_list<std::string_view> kWords = {"not built"};
  EXPECT_TRUE(refused(ncclCommWindowRegister(comms[0], memory, 8192, &window, NCCL_WIN_COLL_SYMMETRIC), ncclInvalidUsage, kWords));
  EXPECT_EQ(window, nullptr);
  EXPECT_EQ(ncclCommWindowDeregister(comms[0], nullptr), ok);
  EXPECT_TRUE(refused(ncclDevCommCreate(comms[0], nullptr, nullptr), ncclInvalidUsage, kWords));
  expectUsable();
  EXPECT_EQ(ncclMemFree(memory), ok);
}

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
  char text[2000];
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
         {"collective", "algorithm", "channels", "lanes", "slices", "slots", "sliceBytes", "bytesRead", "bytesWritten", "steps", "simd"})
      EXPECT_NE(std::string_view(text).find('"' + std::string(key) + "\":"), std::string_view::npos) << key << " in " << text;
  }
  expectUsable();
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
}  // namespace tutti::api_test
