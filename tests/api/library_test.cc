// Version and texts, and what is not built yet.
#include <cstring>

#include "api/api_fixture.h"
#include "nccl_device.h"

namespace tutti::api_test::library_test {
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

class Registration : public Pair {};

// What is declared but not built: an error that says what is missing and what to use instead, and the communicator stays usable.
TEST_F(Registration, WhatIsNotBuiltSaysSo) {
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 8192), ok);
  ncclWindow_t window = reinterpret_cast<ncclWindow_t>(0x99);
  EXPECT_EQ(ncclCommWindowRegister(comms[0], nullptr, 8, &window, 0), ok);
  EXPECT_EQ(ncclCommWindowRegister(comms[0], memory, 0, &window, 0), ok);
  EXPECT_EQ(window, reinterpret_cast<ncclWindow_t>(0x99)) << "untouched";
  if (const char* forbidden = std::getenv("NCCL_WIN_ENABLE"); forbidden != nullptr && *forbidden == '0') {
    EXPECT_EQ(ncclCommWindowRegister(comms[0], memory, 8192, &window, NCCL_WIN_COLL_SYMMETRIC), ok);
    EXPECT_EQ(window, nullptr) << "success without a window";
    EXPECT_EQ(ncclCommWindowDeregister(comms[0], window), ok);
    EXPECT_EQ(ncclMemFree(memory), ok);
    return;
  }
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

}  // namespace
}  // namespace tutti::api_test::library_test
