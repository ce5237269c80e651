// Memory that the library gives out, and registration.
#include <cstdint>
#include <cstring>

#include "api/api_fixture.h"

namespace tutti::api_test::memory_test {
namespace {

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

class Registered : public Pair {};

TEST_F(Registered, IsAHintThatSucceeds) {
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

}  // namespace
}  // namespace tutti::api_test::memory_test
